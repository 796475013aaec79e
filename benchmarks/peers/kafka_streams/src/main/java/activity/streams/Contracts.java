package activity.streams;

import static activity.streams.JsonFields.Kind.INTEGER;
import static activity.streams.JsonFields.Kind.NUMBER;
import static activity.streams.JsonFields.Kind.OPTIONAL_TEXT;
import static activity.streams.JsonFields.Kind.TEXT;

import java.math.BigDecimal;

/**
 * The input contracts of docs/CONTRACTS.md, rule by rule in the order in which they refuse. An instance belongs to one
 * task, as its parser's buffers do.
 */
final class Contracts {

    private static final long LATEST_MILLIS = 253_402_300_799_999L; // 9999-12-31T23:59:59.999Z
    private static final long FUTURE_MILLIS = 5 * 60 * 1000L; // how far an event may be ahead of its Kafka timestamp
    private static final int WHOLE_DIGITS = 16;
    private static final int MAX_NUMBER_LENGTH = 100;

    private final String currency;
    private final JsonFields purchaseFields = new JsonFields(
            "purchaseId", "customerId", "productId", "amount", "currency", "occurredAtEpochMillis");
    private final JsonFields profileFields = new JsonFields(
            "customerId", "name", "email", "address", "loyaltyStatus", "updatedAtEpochMillis");

    Contracts(String currency) {
        this.currency = currency;
    }

    Purchase purchase(byte[] key, byte[] value, long timestamp) throws Refusal {
        requireKey(key);
        if (value == null) {
            throw new Refusal(Refusal.MISSING_VALUE);
        }
        String keyText = Texts.strict(key);
        JsonFields fields = purchaseFields;
        fields.read(value);
        fields.require(TEXT, TEXT, OPTIONAL_TEXT, NUMBER, TEXT, INTEGER);
        String id = nonEmpty(fields.text(0));
        String customerId = nonEmpty(fields.text(1));
        long cents = cents(fields.text(3));
        long occurredAt = millis(fields.text(5));
        String code = fields.text(4);
        if (!code.equals(currency) && !isCurrencyCode(code)) {
            throw new Refusal(Refusal.OUT_OF_RANGE);
        }
        requireEqual(id, keyText);
        if (!code.equals(currency)) {
            throw new Refusal(Refusal.CURRENCY_MISMATCH);
        }
        requirePast(occurredAt, timestamp);
        return new Purchase(customerId, fields.text(2), cents, occurredAt);
    }

    /** Reads a profile update, or the end of a profile where the value is null. */
    Judged profile(byte[] key, byte[] value, long timestamp) throws Refusal {
        requireKey(key);
        String keyText = Texts.strict(key);
        if (value == null) {
            return new Judged.ProfileDeletion();
        }
        JsonFields fields = profileFields;
        fields.read(value);
        fields.require(TEXT, TEXT, OPTIONAL_TEXT, OPTIONAL_TEXT, OPTIONAL_TEXT, INTEGER);
        String id = nonEmpty(fields.text(0));
        long updatedAt = millis(fields.text(5));
        requireEqual(id, keyText);
        requirePast(updatedAt, timestamp);
        return new Profile(fields.text(1), fields.text(2), fields.text(3), fields.text(4), updatedAt, timestamp);
    }

    private static void requireKey(byte[] key) throws Refusal {
        if (key == null || key.length == 0) {
            throw new Refusal(Refusal.MISSING_KEY);
        }
    }

    private static void requireEqual(String id, String key) throws Refusal {
        if (!id.equals(key)) {
            throw new Refusal(Refusal.KEY_MISMATCH);
        }
    }

    private static void requirePast(long eventTime, long kafkaTimestamp) throws Refusal {
        if (eventTime > kafkaTimestamp + FUTURE_MILLIS) {
            throw new Refusal(Refusal.TIMESTAMP_IN_FUTURE);
        }
    }

    private static String nonEmpty(String id) throws Refusal {
        if (id.isEmpty()) {
            throw new Refusal(Refusal.OUT_OF_RANGE);
        }
        return id;
    }

    private static boolean isCurrencyCode(String code) {
        return code.length() == 3 && code.chars().allMatch(letter -> letter >= 'A' && letter <= 'Z');
    }

    private static long millis(String digits) throws Refusal {
        try {
            long millis = Long.parseLong(digits);
            if (millis >= 0 && millis <= LATEST_MILLIS) {
                return millis;
            }
        } catch (NumberFormatException beyond64Bits) {
            // Refused like every other time out of range.
        }
        throw new Refusal(Refusal.OUT_OF_RANGE);
    }

    /** An amount in cents, judged by value: 1.100 is 110 cents, 1e2 is 10,000; never a binary float. */
    static long cents(String number) throws Refusal {
        if (number.length() > MAX_NUMBER_LENGTH) {
            throw new Refusal(Refusal.OUT_OF_RANGE);
        }
        try {
            BigDecimal amount = new BigDecimal(number);
            if (amount.signum() == 0) {
                return 0;
            }
            boolean isPlain = amount.scale() == 2 || amount.scale() == 0;
            BigDecimal exact = isPlain ? amount : amount.stripTrailingZeros();
            long wholeDigits = (long) exact.precision() - exact.scale();
            if (amount.signum() > 0 && exact.scale() <= 2 && wholeDigits <= WHOLE_DIGITS) {
                return exact.movePointRight(2).longValueExact();
            }
        } catch (ArithmeticException | NumberFormatException beyondAnyRange) {
            // An exponent that not even BigDecimal can hold.
        }
        throw new Refusal(Refusal.OUT_OF_RANGE);
    }
}
