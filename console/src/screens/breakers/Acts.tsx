import { type Answer, api } from "@/api/client";
import { useMay } from "@/api/session";
import { type AskField, useAsk } from "@/parts/Ask";
import { Button } from "@/parts/Button";
import { cut, seen } from "@/parts/text";
import { useAct } from "@/parts/useAct";

type Breaker = Answer<"/api/v1/breakers/{name}">;

const TTL: AskField = {
  name: "ttl",
  label: "For",
  type: "select",
  value: "90",
  options: [
    ["5", "5 minutes"],
    ["15", "15 minutes"],
    ["30", "30 minutes"],
    ["90", "90 minutes"],
    ["240", "4 hours"],
    ["1440", "a day"],
  ],
  hint: "Then it is left to itself again, whoever has forgotten it.",
};

/** What an operator can say to a breaker; it holds for every process on the store. */
export function Acts({ breaker }: { breaker: Breaker }) {
  const name = breaker.service_name;
  const said = cut(seen(name), 80);
  const may = useMay("breakers:operate");
  const ask = useAsk();
  const changes = [["breakers"], ["guards"]] as const;
  const path = { name };
  const open = useAct((given: { reason: string; ttl_minutes: number }) => api.post("/api/v1/breakers/{name}/force-open", { path, body: given }), { says: `${said} is held open`, changes });
  const close = useAct((given: { reason: string; ttl_minutes: number }) => api.post("/api/v1/breakers/{name}/force-close", { path, body: given }), { says: `${said} is held closed`, changes });
  const reset = useAct((reason: string) => api.post("/api/v1/breakers/{name}/reset", { path, body: { reason } }), { says: `${said} is closed, and its counts are 0`, changes });
  const clear = useAct((reason: string) => api.post("/api/v1/breakers/{name}/clear", { path, body: { reason } }), { says: `${said} is left to itself`, changes });
  const unstored = breaker.stored ? undefined : breaker.state === "closed" ? "It never moved, so there is nothing to reset." : "The store has not heard of it yet, so there is nothing to reset there.";
  return (
    <>
      <Button
        icon="pause"
        look="danger"
        why={may.why}
        busy={open.busy}
        onClick={async () => {
          const answer = await ask({
            title: `Hold ${said} open?`,
            body: "Every process on the store refuses its calls at once. Nothing reaches the dependency, not even a probe, until the time is over or somebody clears it.",
            confirm: "Hold open",
            danger: true,
            reason: "must",
            fields: [TTL],
          });
          if (answer) await open.run({ reason: answer.reason, ttl_minutes: Number(answer["ttl"]) });
        }}
      >
        Hold open
      </Button>
      <Button
        icon="play"
        why={may.why}
        busy={close.busy}
        onClick={async () => {
          const answer = await ask({
            title: `Hold ${said} closed?`,
            body: "Every call goes through in every process, and the breaker does not trip, however many fail. Use it when the breaker is wrong and the dependency is well.",
            confirm: "Hold closed",
            danger: true,
            reason: "must",
            fields: [TTL],
          });
          if (answer) await close.run({ reason: answer.reason, ttl_minutes: Number(answer["ttl"]) });
        }}
      >
        Hold closed
      </Button>
      {breaker.pin_active && (
        <Button
          icon="check"
          look="primary"
          why={may.why}
          busy={clear.busy}
          onClick={async () => {
            const answer = await ask({ title: `Leave ${said} to itself?`, body: `It stays ${breaker.state.replace("_", "-")}, and its own rules decide from here on.`, confirm: "Leave to itself", reason: "must" });
            if (answer) await clear.run(answer.reason);
          }}
        >
          Leave to itself
        </Button>
      )}
      <Button
        icon="refresh"
        why={may.why ?? unstored}
        busy={reset.busy}
        onClick={async () => {
          const answer = await ask({ title: `Reset ${said}?`, body: "It is closed in every process, and its counts and an operator's word on it are forgotten. If the dependency is still down, it opens again by its rules.", confirm: "Reset", reason: "must" });
          if (answer) await reset.run(answer.reason);
        }}
      >
        Reset
      </Button>
    </>
  );
}
