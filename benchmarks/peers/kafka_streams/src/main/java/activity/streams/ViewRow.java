package activity.streams;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.math.BigDecimal;

/** The view topic's JSON, field by field as docs/CONTRACTS.md has it. */
final class ViewRow {

    private static final JsonFactory JSON = new JsonFactory();
    private static final int TYPICAL_BYTES = 512;

    private ViewRow() {}

    static byte[] json(byte[] customerId, Profile profile, Summary summary, String currency) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(TYPICAL_BYTES);
        try (JsonGenerator json = JSON.createGenerator(bytes)) {
            json.writeStartObject();
            json.writeStringField("customerId", new String(customerId, UTF_8));
            json.writeStringField("name", profile.name());
            json.writeStringField("email", profile.email());
            json.writeStringField("address", profile.address());
            json.writeStringField("loyaltyStatus", profile.loyaltyStatus());
            json.writeNumberField("profileUpdatedAtEpochMillis", profile.updatedAt());
            json.writeNumberField("purchaseCount", summary.count());
            json.writeNumberField("totalAmount", BigDecimal.valueOf(summary.cents(), 2)); // always two decimals
            json.writeStringField("currency", currency);
            writeTime(json, "firstPurchaseAtEpochMillis", summary, summary.first());
            writeTime(json, "lastPurchaseAtEpochMillis", summary, summary.last());
            json.writeNumberField("viewVersion", summary.viewVersion());
            json.writeNumberField("asOfEpochMillis",
                    Math.max(profile.kafkaTimestamp(), summary.newestKafkaTimestamp()));
            json.writeEndObject();
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible); // the bytes go to memory
        }
        return bytes.toByteArray();
    }

    private static void writeTime(JsonGenerator json, String name, Summary summary, long millis) throws IOException {
        if (summary.count() == 0) {
            json.writeNullField(name);
        } else {
            json.writeNumberField(name, millis);
        }
    }
}
