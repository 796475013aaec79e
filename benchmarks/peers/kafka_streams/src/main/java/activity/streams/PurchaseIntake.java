package activity.streams;

import static java.nio.charset.StandardCharsets.UTF_8;

import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Lets each purchase through once, keyed by its customer.
 *
 * <p>All records of a purchase id are in one partition, so the first that is met has the lowest offset. What it said is
 * kept for good: a repeat that says the same is dropped, one that says otherwise is refused.
 */
final class PurchaseIntake extends Intake {

    private final Contracts contracts;
    private KeyValueStore<byte[], Purchase> counted;

    PurchaseIntake(String currency) {
        contracts = new Contracts(currency);
    }

    @Override
    public void init(ProcessorContext<byte[], Judged> context) {
        super.init(context);
        counted = context.getStateStore(ActivityTopology.PURCHASES);
    }

    @Override
    void accept(Record<byte[], byte[]> record) throws Refusal {
        Purchase purchase = contracts.purchase(record.key(), record.value(), record.timestamp());
        Purchase first = counted.putIfAbsent(record.key(), purchase);
        if (first == null) {
            forward(purchase.customerId().getBytes(UTF_8), purchase, record.timestamp());
        } else if (!first.equals(purchase)) {
            throw new Refusal(Refusal.CONFLICTING_DUPLICATE);
        }
    }
}
