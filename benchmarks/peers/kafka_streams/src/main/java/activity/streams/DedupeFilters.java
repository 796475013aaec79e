package activity.streams;

import java.util.Map;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.Options;

/**
 * Bloom filters on every level of the store of purchase ids.
 *
 * <p>Kafka Streams builds none for the last level, where nearly all keys are, because it expects keys to be found. Here
 * nearly every purchase is new, and without a filter each would cost a look into a file.
 */
public final class DedupeFilters implements RocksDBConfigSetter {

    @Override
    public void setConfig(String storeName, Options options, Map<String, Object> configs) {
        if (storeName.equals(ActivityTopology.PURCHASES)) {
            options.setOptimizeFiltersForHits(false);
        }
    }

    @Override
    public void close(String storeName, Options options) {
        // Nothing of ours to release.
    }
}
