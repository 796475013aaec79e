"""Every error the product raises on purpose.

    ActivityError
    ├── CheckFailed           a check found differences                    exit 1
    │   └── PublishingHeld        quality holds the gate of publishing shut
    ├── TerminalError         trying again does not help                   exit 2
    │   ├── SettingsError         a setting is missing, unknown or wrong
    │   │   └── OtherRuntime          executors have another release, libraries or time zones than the driver
    │   ├── EnvironmentFault      Java, jars, a port or disk space is missing
    │   ├── TopicMismatch         a topic is absent or not as infra/kafka/topics.yaml says
    │   ├── KafkaRefused          Kafka does not let this client in, or not to what it needs
    │   ├── BadShareExceeded      too many bad records: a bad deploy upstream
    │   ├── CheckpointMismatch    table and checkpoint contradict each other
    │   ├── LakeOfAnotherRelease  the lake's tables are of an older or a newer release
    │   ├── CorrectionUnfinished  a correction was interrupted
    │   ├── OffsetsLost           Kafka no longer has records that were never landed
    │   ├── ChangeFeedLost        files are gone that a query still has to read
    │   │   └── Corrected             rows that it has read were retracted since
    │   ├── RowsLost              files of a table's newest version are gone, and rows with them
    │   └── ForeignCommit         a hot-path table was changed by something else than the pipeline
    └── TransientError        the same call may succeed later              exit 75
        ├── BrokerUnavailable     Kafka does not answer
        ├── RecordsUnreadable     Kafka hands out records that the client cannot read
        ├── JvmGone               the driver's JVM no longer answers
        ├── DiskFull              the lake's disk, or an executor's, has no space left
        ├── StorageUnavailable    S3 does not answer
        ├── JudgingBusy           another run of quality is at work on the lake
        ├── IndexDamaged          a local index could not be read; it is made again
        ├── QueryAlreadyRunning   another driver holds the query
        └── LeaseLost             another driver took the query over

A message says what happened, where, and what to do. A bad record is not an error: it is a row in quarantine.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_CHECK_FAILED = 1
EXIT_TERMINAL = 2
EXIT_TRY_AGAIN = 75  # EX_TEMPFAIL of sysexits.h

FREE_SPACE = "free some, then start again: nothing of a batch at work counts yet, and it is taken again"


class ActivityError(Exception):
    """Base of all; carries the exit code that the command line ends with."""

    exit_code = EXIT_TERMINAL

    def __init__(self, what: str, *, remedy: str = "") -> None:
        """Compose the message from what happened (and where) and what to do about it."""
        super().__init__(f"{what}\n  → {remedy}" if remedy else what)
        self.what = what
        self.remedy = remedy


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of the command line for an error: 1 for an unexpected one."""
    return error.exit_code if isinstance(error, ActivityError) else EXIT_CHECK_FAILED


class CheckFailed(ActivityError):
    """Raised when a check ran to its end and found differences."""

    exit_code = EXIT_CHECK_FAILED


class PublishingHeld(CheckFailed):
    """Raised when a drain comes to a gate that a failed rule holds shut; nothing of the batch went out."""


class TerminalError(ActivityError):
    """Raised when trying again cannot help; something has to be changed first."""


class SettingsError(TerminalError):
    """Raised when a setting is missing, unknown or out of range."""


class OtherRuntime(SettingsError):
    """Raised when an executor has another release, libraries or time zones than the driver: rows could differ."""


class EnvironmentFault(TerminalError):
    """Raised when the machine lacks something: Java, jars, a free port, disk space."""


class TopicMismatch(TerminalError):
    """Raised when a topic is absent, or differs from `infra/kafka/topics.yaml`."""


class KafkaRefused(TerminalError):
    """Raised when Kafka refuses who signs in, shows a certificate without a trusted issuer, or denies us a right."""


class BadShareExceeded(TerminalError):
    """Raised when more records are bad than `ACTIVITY_MAX_BAD_SHARE` allows."""


class CheckpointMismatch(TerminalError):
    """Raised when a checkpoint and the table it writes contradict each other."""


class LakeOfAnotherRelease(TerminalError):
    """Raised when a lake's tables are not of the layout that this release works on."""


class CorrectionUnfinished(TerminalError):
    """Raised while some of a lake's tables are corrected and others not: the correction has to be finished first."""


class OffsetsLost(TerminalError):
    """Raised when Kafka no longer has offsets that the checkpoint still has to read."""


class ChangeFeedLost(TerminalError):
    """Raised when files of a table's change feed are gone that a query still has to read."""


class Corrected(ChangeFeedLost):
    """Raised when a correction lies between what was read of a table and what is wanted: its feed does not go on."""


class RowsLost(TerminalError):
    """Raised when files of a table's newest version are gone, and with them rows."""


class ForeignCommit(TerminalError):
    """Raised when a hot-path table has a commit that the pipeline did not make and cannot follow."""


class TransientError(ActivityError):
    """Raised when the same call may succeed later without any change."""

    exit_code = EXIT_TRY_AGAIN


class BrokerUnavailable(TransientError):
    """Raised when Kafka does not answer within the time allowed."""


class RecordsUnreadable(TransientError):
    """Raised when Kafka hands out records that are damaged, or written in a way that the client does not know."""


class DiskFull(TransientError):
    """Raised when the lake's disk, or one that an executor needs, has no space left."""


class JvmGone(TransientError):
    """Raised when the driver's JVM no longer answers."""


class StorageUnavailable(TransientError):
    """Raised when S3 does not answer, or not in time."""


class JudgingBusy(TransientError):
    """Raised when another run of quality is at work on the same lake."""


class IndexDamaged(TransientError):
    """Raised when a local index was found damaged and was removed: the next start makes it again from the tables."""


class QueryAlreadyRunning(TransientError):
    """Raised when another live driver already runs the query on this lake."""


class LeaseLost(TransientError):
    """Raised in a driver that another one has taken over from: it must commit nothing more."""


class Stopping(Exception):
    """Raised inside a batch that must not begin any more: no error, but how it is turned away."""
