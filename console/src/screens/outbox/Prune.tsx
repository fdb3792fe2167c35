import { api } from "@/api/client";
import { useMay } from "@/api/session";
import { useUrl } from "@/app/url";
import { Button } from "@/parts/Button";
import { Old } from "@/parts/Old";

const USUAL_DAYS = 30;

/** Delete entries that succeeded long ago. */
export function Prune() {
  const url = useUrl();
  const may = useMay("outbox:admin");
  const after = url.get("after");
  return (
    <>
      <Button icon="bin" why={may.why} onClick={() => url.set({ old: "prune", after })}>
        Delete old…
      </Button>
      {url.get("old") === "prune" && (
        <Old
          title="Delete old entries"
          right="outbox:admin"
          verb={["Delete", "Deleted", "would be deleted"]}
          noun={["entry", "entries"]}
          since="They succeeded"
          days={USUAL_DAYS}
          forGood
          count={(older_than_days, _, signal) => api.get("/api/v1/outbox/prune/preview", { query: { older_than_days }, signal })}
          act={async ({ days, expected, goes_on, reason }) => {
            const { deleted, left } = await api.post("/api/v1/outbox/prune", { body: { older_than_days: days, expected, goes_on, reason } });
            return { done: deleted, left };
          }}
          changes="outbox"
          close={() => url.set({ old: null, after }, { replace: true })}
        >
          Entries that succeeded are gone for good, with their attempts. Those stay whose group or saga is not complete, and those that were given up or not verified. The audit trail keeps all its
          events.
        </Old>
      )}
    </>
  );
}
