"""Publishing to Kafka with an idempotent producer: its own resends are not stored twice.

That holds within one producer. An entry that is published again, after a crash, is a second record with the same
`ce_id`; consumers tell it by that (`Inbox`).
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Final

from holdfast.errors import MissingExtra, ResolverError
from holdfast.outbox.publishing import Message, Mode, PublishError, Unroutable

PREFIX: Final = "ce_"
_POLL_S: Final = 0.5
_NEVER: Final = ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "TOPIC_EXCEPTION")
_NOWHERE: Final = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")


class KafkaPublisher:
    """The topic is Kafka's, and the ordering key the record's key, so that a key's messages share a partition.

    `servers` is a list of `host:port`, or a `confluent_kafka.Producer`, which stays the caller's. A message is
    published when all replicas in sync have it. `timeout` bounds that, resends included. `options` are further settings
    of the producer, such as `{"security.protocol": "SASL_SSL"}`.
    """

    def __init__(
        self,
        servers: Any,
        *,
        name: str = "kafka",
        mode: Mode = "binary",
        timeout: float = 10.0,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._kafka = _kafka()
        self.name = name
        self._mode: Mode = mode
        self._servers = servers
        usual = {"enable.idempotence": True, "acks": "all", "linger.ms": 5, "message.timeout.ms": int(timeout * 1000)}
        self._settings = {**usual, **(options or {})}
        self._lock = threading.Lock()
        self._reports: _Reports | None = None

    async def publish(self, message: Message) -> None:
        """Raises Unroutable for a topic that is not there, ResolverError for a message that Kafka never takes."""
        reports = self._open()
        headers, kind, body = message.form(self._mode, prefix=PREFIX, quoted=False)
        loop = asyncio.get_running_loop()
        reported: asyncio.Future[None] = loop.create_future()

        def report(error: Any, _: Any) -> None:
            try:
                loop.call_soon_threadsafe(_settle, reported, error)
            except RuntimeError:
                pass  # the loop has ended, and whoever waited with it

        pairs = {**headers, PREFIX + "id": message.id, "content-type": kind}
        try:
            reports.producer.produce(
                message.topic,
                body,
                key=None if message.key is None else message.key.encode(),
                headers=[(name, value.encode()) for name, value in pairs.items()],
                on_delivery=report,
            )
            await reported
        except self._kafka.KafkaException as error:
            raise self._told(message, error.args[0], reports) from error

    async def close(self) -> None:
        with self._lock:
            reports, self._reports = self._reports, None
        if reports is not None:
            reports.failed = True
            await asyncio.to_thread(reports.end)

    def _told(self, message: Message, error: Any, reports: _Reports) -> Exception:
        if error.fatal():
            reports.failed = True  # an idempotent producer that lost count cannot go on; the next call makes another
        story = f"Kafka did not take a message on {message.topic!r}: {error.name()}"
        if error.name() in _NEVER:
            return ResolverError(story)
        return Unroutable(story) if error.name() in _NOWHERE else PublishError(story)

    def _open(self) -> _Reports:
        """The producer, which all loops share: it has threads of its own."""
        with self._lock:
            if self._reports is None or self._reports.failed:
                self._reports = _Reports(self._producer())
            return self._reports

    def _producer(self) -> Any:
        if not isinstance(self._servers, str):
            return self._servers
        return self._kafka.Producer({"bootstrap.servers": self._servers, **self._settings}, logger=_Quiet())


class _Reports:
    """A producer, and the thread in which it hands out its delivery reports until it has `failed`."""

    def __init__(self, producer: Any) -> None:
        self.producer = producer
        self.failed = False
        self._thread = threading.Thread(target=self._run, name="holdfast-kafka-reports", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._thread.join()
        self.producer.flush(_POLL_S)

    def _run(self) -> None:
        while not self.failed:
            self.producer.poll(_POLL_S)


class _Quiet:
    """Errors reach whoever publishes; the producer's own log would say them a second time, on stderr."""

    def log(self, *_: Any, **__: Any) -> None:
        pass


def _settle(reported: asyncio.Future[None], error: Any) -> None:
    if reported.done():
        return
    if error is None:
        reported.set_result(None)
    else:
        reported.set_exception(_kafka().KafkaException(error))


def _kafka() -> Any:
    try:
        import confluent_kafka
    except ImportError as error:
        raise MissingExtra("publishing to Kafka needs confluent-kafka; run: pip install 'holdfast[kafka]'") from error
    return confluent_kafka
