"""What is left to do: the chunks of our shard that a results file does not have."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rhumbline.distributed.chunks import Chunk, cut_into_chunks
from rhumbline.distributed.fingerprints import InstanceKeys
from rhumbline.distributed.shards import Shard


@dataclass(frozen=True)
class PendingInstance:
    """What is known of an instance that has no result yet."""

    key: str
    name: str
    problem: str


@dataclass
class RemainingChunks:
    """Chunks that are not done, and the key of each instance that has been read and is not done.

    A chunk that lacks a result is solved as a whole, so its plans equal those of an uninterrupted
    run.
    """

    done: set[str]  # keys with a result
    shard: Shard = field(default_factory=Shard)
    skipped: int = 0  # instances of our shard that have a result
    pending: dict[int, PendingInstance] = field(default_factory=dict[int, PendingInstance])
    all_keys: InstanceKeys = field(default_factory=InstanceKeys)

    def cut(self, instances: Iterable[Any], length: int, copies: int) -> Iterator[Chunk]:
        """Yield the chunks that are left."""
        for chunk in cut_into_chunks(self.with_keys(instances), length, copies):
            keys = [self.pending[place].key for place in chunk.places]
            is_ours = self.shard.takes(chunk.number)
            is_done = self.done.issuperset(keys)
            if is_ours and not is_done:
                yield chunk
                continue
            self.skipped += len(chunk) if is_ours else 0
            for place in chunk.places:
                del self.pending[place]

    def with_keys(self, instances: Iterable[Any]) -> Iterator[Any]:
        """Yield the instances, and remember the key of each."""
        for place, instance in enumerate(instances):
            key = self.all_keys.key(instance)
            pending = PendingInstance(key, instance.name, instance.problem)
            self.pending[place] = pending
            yield instance

    def take(self, place: int) -> PendingInstance:
        """Return what is known of an instance that is done, and forget it."""
        return self.pending.pop(place)
