import { api } from "@/api/client";
import { DeleteOld } from "@/parts/DeleteOld";

/** Delete workflows that ended long ago. */
export function Prune() {
  return (
    <DeleteOld
      right="workflows:admin"
      noun={["workflow", "workflows"]}
      since="They ended"
      count={(_, before, signal) => api.get("/api/v1/workflows/prune/preview", { query: { before }, signal })}
      act={async ({ before, expected, goes_on, reason }) => {
        const { deleted, left } = await api.post("/api/v1/workflows/prune", { body: { before, expected, goes_on, reason } });
        return { done: deleted, left };
      }}
      changes="workflows"
    >
      They are gone for good, with their stages and logs, and their idempotency keys can be used again. Those stay that have dead letters, finalizers that were not done, or a parent that is under way.
    </DeleteOld>
  );
}
