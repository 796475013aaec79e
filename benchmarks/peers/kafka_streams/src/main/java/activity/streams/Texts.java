package activity.streams;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;

/** Text as bytes: strict UTF-8 for input, length and UTF-8 (length -1 for null) for what the stores hold. */
final class Texts {

    private Texts() {}

    /** Decodes bytes, or refuses them where they are not UTF-8; {@code new String} would put in a substitute. */
    static String strict(byte[] bytes) throws Refusal {
        if (isAscii(bytes)) {
            return new String(bytes, UTF_8);
        }
        try {
            return UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException notUtf8) {
            throw new Refusal(Refusal.NOT_UTF8);
        }
    }

    static boolean isAscii(byte[] bytes) {
        int combined = 0;
        for (byte each : bytes) {
            combined |= each;
        }
        return combined >= 0;
    }

    /** Whether a text holds half of a surrogate pair, which JSON's escapes can say and UTF-8 cannot. */
    static boolean hasLoneSurrogate(String text) {
        return text.codePoints().anyMatch(point -> Character.getType(point) == Character.SURROGATE);
    }

    static byte[] encoded(String text) {
        return text == null ? null : text.getBytes(UTF_8);
    }

    static int size(byte[] encoded) {
        return Integer.BYTES + (encoded == null ? 0 : encoded.length);
    }

    static void put(ByteBuffer buffer, byte[] encoded) {
        if (encoded == null) {
            buffer.putInt(-1);
        } else {
            buffer.putInt(encoded.length).put(encoded);
        }
    }

    static String get(ByteBuffer buffer) {
        int length = buffer.getInt();
        if (length < 0) {
            return null;
        }
        String text = new String(buffer.array(), buffer.arrayOffset() + buffer.position(), length, UTF_8);
        buffer.position(buffer.position() + length);
        return text;
    }
}
