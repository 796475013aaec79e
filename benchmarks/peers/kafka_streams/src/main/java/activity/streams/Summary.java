package activity.streams;

import java.nio.ByteBuffer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/**
 * What a customer bought, and the version of the row that says so.
 *
 * <p>The version stands here because a purchase that changes the sums of a customer with a profile changes it too: one
 * write for both. It outlives the profile, so that versions grow over deletes.
 *
 * @param cents sum of the amounts
 * @param first, last times of purchase in milliseconds since 1970, without meaning while there is no purchase
 * @param newestKafkaTimestamp of the purchases' records
 * @param viewVersion of the row that was published last; 0 before the first
 */
record Summary(long count, long cents, long first, long last, long newestKafkaTimestamp, long viewVersion) {

    static final Summary NONE = new Summary(0, 0, Long.MAX_VALUE, Long.MIN_VALUE, Long.MIN_VALUE, 0);

    static final Serde<Summary> SERDE = Serdes.serdeFrom(
            (topic, summary) -> summary == null ? null : summary.toBytes(),
            (topic, bytes) -> bytes == null ? null : fromBytes(bytes));

    /**
     * Adds a purchase.
     *
     * @throws ArithmeticException where the sum leaves 64 bits: stopping is better than a wrong total
     */
    Summary plus(Purchase purchase, long kafkaTimestamp) {
        return new Summary(count + 1, Math.addExact(cents, purchase.cents()), Math.min(first, purchase.occurredAt()),
                Math.max(last, purchase.occurredAt()), Math.max(newestKafkaTimestamp, kafkaTimestamp), viewVersion);
    }

    /** The next version: about the wall clock, and above the one before even when the clock was set back. */
    Summary nextVersion(long nowMillis) {
        return new Summary(count, cents, first, last, newestKafkaTimestamp, Math.max(viewVersion + 1, nowMillis));
    }

    private byte[] toBytes() {
        return ByteBuffer.allocate(6 * Long.BYTES).putLong(count).putLong(cents).putLong(first).putLong(last)
                .putLong(newestKafkaTimestamp).putLong(viewVersion).array();
    }

    private static Summary fromBytes(byte[] bytes) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        return new Summary(buffer.getLong(), buffer.getLong(), buffer.getLong(), buffer.getLong(), buffer.getLong(),
                buffer.getLong());
    }
}
