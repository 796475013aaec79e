package activity.streams;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * Purchases, counted once and repartitioned by customer, meet the profiles; what comes of it is the view.
 *
 * <p>Keys stay bytes throughout: nothing here looks into them once they were checked.
 */
final class ActivityTopology {

    static final String PURCHASES = "purchases";
    static final String SUMMARIES = "summaries";
    static final String PROFILES = "profiles";

    private static final Serde<byte[]> BYTES = Serdes.ByteArray();
    private static final Consumed<byte[], byte[]> FROM_BYTES = Consumed.with(BYTES, BYTES);
    private static final Produced<byte[], byte[]> AS_BYTES = Produced.with(BYTES, BYTES);

    private ActivityTopology() {}

    static Topology of(Settings settings) {
        StreamsBuilder builder = new StreamsBuilder();
        // Nearly every purchase id is new: a cache in front of its store would hold what nobody asks for.
        builder.addStateStore(store(PURCHASES, Purchase.SERDE).withCachingDisabled());
        builder.addStateStore(store(SUMMARIES, Summary.SERDE).withCachingEnabled());
        builder.addStateStore(store(PROFILES, Profile.SERDE).withCachingEnabled());

        KStream<byte[], Judged> purchases = builder.stream(settings.purchaseTopic(), FROM_BYTES)
                .process(() -> new PurchaseIntake(settings.currency()), Named.as("purchase-intake"), PURCHASES);
        KStream<byte[], Judged> profiles = builder.stream(settings.profileTopic(), FROM_BYTES)
                .process(() -> new ProfileIntake(settings.currency()), Named.as("profile-intake"));

        deadLetters(purchases).to(settings.deadLetterTopic(), AS_BYTES);
        deadLetters(profiles).to(settings.deadLetterTopic(), AS_BYTES);

        KStream<byte[], Judged> byCustomer = accepted(purchases)
                .mapValues(purchase -> (Purchase) purchase)
                .repartition(Repartitioned.with(BYTES, Purchase.SERDE).withName("by-customer"))
                .mapValues(purchase -> purchase);
        byCustomer.merge(accepted(profiles))
                .process(() -> new CustomerView(settings.currency()), Named.as("customer-view"), SUMMARIES, PROFILES)
                .to(settings.viewTopic(), AS_BYTES);
        return builder.build();
    }

    private static KStream<byte[], Judged> accepted(KStream<byte[], Judged> judged) {
        return judged.filterNot((key, value) -> value instanceof Judged.Refused);
    }

    private static KStream<byte[], byte[]> deadLetters(KStream<byte[], Judged> judged) {
        return judged.filter((key, value) -> value instanceof Judged.Refused)
                .mapValues(value -> ((Judged.Refused) value).value());
    }

    private static <V> StoreBuilder<KeyValueStore<byte[], V>> store(String name, Serde<V> values) {
        return Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(name), BYTES, values);
    }
}
