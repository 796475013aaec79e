package activity.streams;

/** Says why a record breaks its contract, in the contract's words; has no stack trace, as nobody looks for a bug. */
final class Refusal extends Exception {

    private static final long serialVersionUID = 1L;

    static final String MISSING_KEY = "missing_key";
    static final String MISSING_VALUE = "missing_value";
    static final String NOT_UTF8 = "not_utf8";
    static final String NOT_JSON = "not_json";
    static final String WRONG_TYPE = "wrong_type";
    static final String MISSING_FIELD = "missing_field";
    static final String OUT_OF_RANGE = "out_of_range";
    static final String KEY_MISMATCH = "key_mismatch";
    static final String CURRENCY_MISMATCH = "currency_mismatch";
    static final String TIMESTAMP_IN_FUTURE = "timestamp_in_future";
    static final String CONFLICTING_DUPLICATE = "conflicting_duplicate";

    Refusal(String reason) {
        super(reason, null, false, false);
    }

    String reason() {
        return getMessage();
    }
}
