package activity.streams;

/** What an input record turned out to be. */
sealed interface Judged permits Purchase, Profile, Judged.ProfileDeletion, Judged.Refused {

    /** The end of a profile: whatever comes after it starts afresh. */
    record ProfileDeletion() implements Judged {}

    /** A record for the dead-letter topic, with its bytes as they came. */
    record Refused(byte[] value) implements Judged {}
}
