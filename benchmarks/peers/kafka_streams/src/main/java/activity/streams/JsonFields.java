package activity.streams;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadConstraints;
import java.io.IOException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/**
 * Reads one JSON object strictly and keeps the fields that a contract names; of equal names the last counts.
 *
 * <p>Numbers stay the text that they were on the wire. An instance is reused from record to record and belongs to one
 * task.
 */
final class JsonFields {

    private static final int MAX_NESTING = 256;

    /**
     * No detection of the encoding: input is UTF-8, and bytes that look like UTF-16 are refused, not understood. The
     * length of a record is limit enough for names and numbers that nobody asks for.
     */
    private static final JsonFactory JSON = JsonFactory.builder()
            .disable(JsonFactory.Feature.CHARSET_DETECTION)
            .streamReadConstraints(StreamReadConstraints.builder()
                    .maxNestingDepth(MAX_NESTING)
                    .maxNameLength(Integer.MAX_VALUE)
                    .maxNumberLength(Integer.MAX_VALUE)
                    .build())
            .build();

    private final Map<String, Integer> places = new HashMap<>();
    private final JsonToken[] tokens;
    private final String[] texts;

    JsonFields(String... names) {
        for (String name : names) {
            places.put(name, places.size());
        }
        tokens = new JsonToken[names.length];
        texts = new String[names.length];
    }

    /** Reads a record's value; the fields are then asked for by their place among the names. */
    void read(byte[] value) throws Refusal {
        if (!Texts.isAscii(value)) {
            Texts.strict(value);
        }
        boolean isObject = readAll(value);
        if (mayHoldSurrogates(value)) {
            refuseLoneSurrogates(value);
        }
        if (!isObject) {
            throw new Refusal(Refusal.WRONG_TYPE);
        }
    }

    /** Refuses fields of a type that the contract does not have, and after that fields that are not there. */
    void require(Kind... kinds) throws Refusal {
        for (int place = 0; place < kinds.length; place++) {
            if (tokens[place] != null && !kinds[place].fits(tokens[place])) {
                throw new Refusal(Refusal.WRONG_TYPE);
            }
        }
        for (int place = 0; place < kinds.length; place++) {
            if (tokens[place] == null && kinds[place] != Kind.OPTIONAL_TEXT) {
                throw new Refusal(Refusal.MISSING_FIELD);
            }
        }
    }

    /** The field's text, or a number's digits as they were written; null where the field is null or absent. */
    String text(int place) {
        return texts[place];
    }

    private boolean readAll(byte[] value) throws Refusal {
        Arrays.fill(tokens, null);
        Arrays.fill(texts, null);
        if (value.length > 0 && value[0] < 0) {
            throw new Refusal(Refusal.NOT_JSON); // a byte-order mark, which the parser would overlook
        }
        try (JsonParser parser = JSON.createParser(value)) {
            JsonToken start = parser.nextToken();
            if (start == null) {
                throw new Refusal(Refusal.NOT_JSON);
            }
            if (start == JsonToken.START_OBJECT) {
                readFields(parser);
            } else {
                parser.skipChildren();
                parser.getText();
            }
            if (parser.nextToken() != null) {
                throw new Refusal(Refusal.NOT_JSON);
            }
            return start == JsonToken.START_OBJECT;
        } catch (IOException malformed) {
            throw new Refusal(Refusal.NOT_JSON);
        }
    }

    private void readFields(JsonParser parser) throws IOException {
        for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
            JsonToken token = parser.nextToken();
            Integer place = places.get(name);
            if (place != null) {
                tokens[place] = token;
                texts[place] = token.isScalarValue() && token != JsonToken.VALUE_NULL ? parser.getText() : null;
            }
            parser.skipChildren();
        }
    }

    /** Whether the text has an escape {@code \\ud...}, the only way to say half of a pair in valid UTF-8. */
    private static boolean mayHoldSurrogates(byte[] value) {
        for (int at = 0; at < value.length - 2; at++) {
            if (value[at] == '\\' && value[at + 1] == 'u' && (value[at + 2] | 0x20) == 'd') {
                return true;
            }
        }
        return false;
    }

    /** Looks at every name and text, of fields that nobody asked for too: what is kept must be writable as UTF-8. */
    private static void refuseLoneSurrogates(byte[] value) throws Refusal {
        try (JsonParser parser = JSON.createParser(value)) {
            for (JsonToken token = parser.nextToken(); token != null; token = parser.nextToken()) {
                boolean isText = token == JsonToken.FIELD_NAME || token == JsonToken.VALUE_STRING;
                if (isText && Texts.hasLoneSurrogate(parser.getText())) {
                    throw new Refusal(Refusal.NOT_UTF8);
                }
            }
        } catch (IOException malformed) {
            throw new Refusal(Refusal.NOT_JSON);
        }
    }

    /** The types that the contracts know. */
    enum Kind {
        TEXT, OPTIONAL_TEXT, NUMBER, INTEGER;

        boolean fits(JsonToken token) {
            return switch (this) {
                case TEXT -> token == JsonToken.VALUE_STRING;
                case OPTIONAL_TEXT -> token == JsonToken.VALUE_STRING || token == JsonToken.VALUE_NULL;
                case NUMBER -> token.isNumeric();
                case INTEGER -> token == JsonToken.VALUE_NUMBER_INT;
            };
        }
    }
}
