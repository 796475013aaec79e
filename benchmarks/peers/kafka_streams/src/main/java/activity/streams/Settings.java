package activity.streams;

import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.streams.StreamsConfig;

/** What the environment says, under the names and with the defaults that the whole project has. */
record Settings(String bootstrapServers, String purchaseTopic, String profileTopic, String viewTopic, String currency,
        Path lake) {

    private static final long CACHE_BYTES = 128L * 1024 * 1024;
    private static final int BATCH_BYTES = 128 * 1024;
    private static final int RESTORED_RECORDS_PER_POLL = 10_000;
    private static final String OVERRIDE = "streams.";

    static Settings from(Map<String, String> environment) {
        return new Settings(
                environment.getOrDefault("ACTIVITY_KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"),
                environment.getOrDefault("ACTIVITY_PURCHASE_TOPIC", "purchase-events"),
                environment.getOrDefault("ACTIVITY_PROFILE_TOPIC", "customer-profile-state"),
                environment.getOrDefault("ACTIVITY_VIEW_TOPIC", "customer-activity-view"),
                environment.getOrDefault("ACTIVITY_CURRENCY", "EUR"),
                Path.of(environment.getOrDefault("ACTIVITY_LAKE", "./var/lake")).toAbsolutePath().normalize());
    }

    String deadLetterTopic() {
        return viewTopic + "-dead-letters";
    }

    /** Two applications that write different views have nothing in common: neither offsets nor internal topics. */
    String applicationId() {
        return "activity-streams-" + viewTopic;
    }

    /**
     * The configuration of Kafka Streams: its defaults, but for what is named here.
     *
     * <p>The commit interval is the default of exactly-once, 100 ms. A system property {@code streams.<name>} replaces
     * or adds a setting, so that other tunings can be measured without another build.
     */
    Properties streamsProperties() {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, applicationId());
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, lake.resolve("streams-state").toString());
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        properties.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        properties.put(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, DedupeFilters.class);
        // Customers who buy often stay in memory, and between two commits only their last state is written.
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, CACHE_BYTES);
        // Batches that hold what is produced within the linger time (100 ms, as Streams sets it), and compress well.
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), BATCH_BYTES);
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.COMPRESSION_TYPE_CONFIG), "lz4");
        properties.put(StreamsConfig.mainConsumerPrefix(ConsumerConfig.ISOLATION_LEVEL_CONFIG), "read_committed");
        // Static membership: a process that was killed takes its place again at once, not when its session expires.
        properties.put(StreamsConfig.mainConsumerPrefix(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG), applicationId());
        properties.put(StreamsConfig.restoreConsumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG),
                RESTORED_RECORDS_PER_POLL);
        System.getProperties().stringPropertyNames().stream()
                .filter(name -> name.startsWith(OVERRIDE))
                .forEach(name -> properties.put(name.substring(OVERRIDE.length()), System.getProperty(name)));
        return properties;
    }
}
