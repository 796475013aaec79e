package activity.streams;

import java.nio.ByteBuffer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/**
 * A valid purchase; its id is the record's key, and its currency the deployment's. Two records of an id are the same
 * purchase when these fields are equal.
 *
 * @param productId may be null
 * @param cents the amount
 * @param occurredAt milliseconds since 1970
 */
record Purchase(String customerId, String productId, long cents, long occurredAt) implements Judged {

    static final Serde<Purchase> SERDE = Serdes.serdeFrom(
            (topic, purchase) -> purchase == null ? null : purchase.toBytes(),
            (topic, bytes) -> bytes == null ? null : fromBytes(bytes));

    private byte[] toBytes() {
        byte[] customer = Texts.encoded(customerId);
        byte[] product = Texts.encoded(productId);
        ByteBuffer buffer = ByteBuffer.allocate(2 * Long.BYTES + Texts.size(customer) + Texts.size(product));
        buffer.putLong(cents).putLong(occurredAt);
        Texts.put(buffer, customer);
        Texts.put(buffer, product);
        return buffer.array();
    }

    private static Purchase fromBytes(byte[] bytes) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        long cents = buffer.getLong();
        long occurredAt = buffer.getLong();
        return new Purchase(Texts.get(buffer), Texts.get(buffer), cents, occurredAt);
    }
}
