package activity.streams;

import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Keeps each customer's profile and summary, and forwards the row whenever either changes: profile left join summary.
 *
 * <p>Two tables and a join of the DSL would say the same with a third store, to know what was published last; seeing
 * both sides at once, one processor knows what changed. The profile is a store of its own, because it is longer than
 * the summary and changes far less often than purchases come.
 */
final class CustomerView implements Processor<byte[], Judged, byte[], byte[]> {

    private final String currency;
    private ProcessorContext<byte[], byte[]> context;
    private KeyValueStore<byte[], Summary> summaries;
    private KeyValueStore<byte[], Profile> profiles;

    CustomerView(String currency) {
        this.currency = currency;
    }

    @Override
    public void init(ProcessorContext<byte[], byte[]> context) {
        this.context = context;
        summaries = context.getStateStore(ActivityTopology.SUMMARIES);
        profiles = context.getStateStore(ActivityTopology.PROFILES);
    }

    @Override
    public void process(Record<byte[], Judged> record) {
        byte[] customerId = record.key();
        if (record.value() instanceof Purchase purchase) {
            add(customerId, purchase, record.timestamp());
        } else if (record.value() instanceof Profile update) {
            replace(customerId, update, record.timestamp());
        } else if (profiles.delete(customerId) != null) {
            context.forward(new Record<>(customerId, null, record.timestamp()));
        }
    }

    /** Without a profile there is no row: the sums wait for it. */
    private void add(byte[] customerId, Purchase purchase, long timestamp) {
        Summary summary = summary(customerId).plus(purchase, timestamp);
        Profile profile = profiles.get(customerId);
        if (profile == null) {
            summaries.put(customerId, summary);
        } else {
            publish(customerId, profile, summary, timestamp);
        }
    }

    private void replace(byte[] customerId, Profile update, long timestamp) {
        if (update.replaces(profiles.get(customerId))) {
            profiles.put(customerId, update);
            publish(customerId, update, summary(customerId), timestamp);
        }
    }

    private void publish(byte[] customerId, Profile profile, Summary summary, long timestamp) {
        Summary published = summary.nextVersion(context.currentSystemTimeMs());
        summaries.put(customerId, published);
        context.forward(new Record<>(customerId, ViewRow.json(customerId, profile, published, currency), timestamp));
    }

    private Summary summary(byte[] customerId) {
        Summary known = summaries.get(customerId);
        return known == null ? Summary.NONE : known;
    }
}
