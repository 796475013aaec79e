package activity.streams;

import java.nio.ByteBuffer;
import java.util.Objects;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/**
 * A valid profile update.
 *
 * @param email, address, loyaltyStatus may be null
 * @param updatedAt when it was changed at its source, milliseconds since 1970
 * @param kafkaTimestamp of the record that brought it
 */
record Profile(String name, String email, String address, String loyaltyStatus, long updatedAt, long kafkaTimestamp)
        implements Judged {

    static final Serde<Profile> SERDE = Serdes.serdeFrom(
            (topic, profile) -> profile == null ? null : profile.toBytes(),
            (topic, bytes) -> bytes == null ? null : fromBytes(bytes));

    /**
     * Whether this update becomes current after {@code current}. Updates of a customer are met in the order of their
     * offsets, so of two with one time the later wins; one that says nothing new changes nothing.
     */
    boolean replaces(Profile current) {
        return current == null || updatedAt > current.updatedAt || updatedAt == current.updatedAt && !says(current);
    }

    private boolean says(Profile other) {
        return Objects.equals(name, other.name) && Objects.equals(email, other.email)
                && Objects.equals(address, other.address) && Objects.equals(loyaltyStatus, other.loyaltyStatus);
    }

    private byte[] toBytes() {
        byte[][] texts = {
            Texts.encoded(name), Texts.encoded(email), Texts.encoded(address), Texts.encoded(loyaltyStatus)
        };
        int size = 2 * Long.BYTES;
        for (byte[] text : texts) {
            size += Texts.size(text);
        }
        ByteBuffer buffer = ByteBuffer.allocate(size).putLong(updatedAt).putLong(kafkaTimestamp);
        for (byte[] text : texts) {
            Texts.put(buffer, text);
        }
        return buffer.array();
    }

    private static Profile fromBytes(byte[] bytes) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        long updatedAt = buffer.getLong();
        long kafkaTimestamp = buffer.getLong();
        return new Profile(Texts.get(buffer), Texts.get(buffer), Texts.get(buffer), Texts.get(buffer), updatedAt,
                kafkaTimestamp);
    }
}
