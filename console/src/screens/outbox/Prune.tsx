import { api } from "@/api/client";
import { DeleteOld } from "@/parts/DeleteOld";

/** Delete entries that succeeded long ago. */
export function Prune() {
  return (
    <DeleteOld
      right="outbox:admin"
      noun={["entry", "entries"]}
      since="They succeeded"
      count={(older_than_days, _, signal) => api.get("/api/v1/outbox/prune/preview", { query: { older_than_days }, signal })}
      act={async ({ days, expected, goes_on, reason }) => {
        const { deleted, left } = await api.post("/api/v1/outbox/prune", { body: { older_than_days: days, expected, goes_on, reason } });
        return { done: deleted, left };
      }}
      changes="outbox"
    >
      Entries that succeeded are gone for good, with their attempts. Those stay whose group or saga is not complete, and those that were given up or not verified. The audit trail keeps all its events.
    </DeleteOld>
  );
}
