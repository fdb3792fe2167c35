import { api } from "@/api/client";
import { useMay } from "@/api/session";
import { useUrl } from "@/app/url";
import { Button } from "@/parts/Button";
import { Old } from "@/parts/Old";

const USUAL_DAYS = 30;

/** Delete workflows that ended long ago. */
export function Prune() {
  const url = useUrl();
  const may = useMay("workflows:admin");
  const after = url.get("after");
  return (
    <>
      <Button icon="bin" why={may.why} onClick={() => url.set({ old: "prune", after })}>
        Delete old…
      </Button>
      {url.get("old") === "prune" && (
        <Old
          title="Delete old workflows"
          right="workflows:admin"
          verb={["Delete", "Deleted", "would be deleted"]}
          noun={["workflow", "workflows"]}
          since="They ended"
          days={USUAL_DAYS}
          forGood
          count={(_, before, signal) => api.get("/api/v1/workflows/prune/preview", { query: { before }, signal })}
          act={async ({ before, expected, goes_on, reason }) => {
            const { deleted, left } = await api.post("/api/v1/workflows/prune", { body: { before, expected, goes_on, reason } });
            return { done: deleted, left };
          }}
          changes="workflows"
          close={() => url.set({ old: null, after }, { replace: true })}
        >
          They are gone for good, with their stages and logs, and their idempotency keys can be used again. Those stay that have dead letters, finalizers that were not done, or a parent that is under way.
        </Old>
      )}
    </>
  );
}
