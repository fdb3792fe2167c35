import { useQuery } from "@tanstack/react-query";
import { type Answer, api } from "@/api/client";
import { useMay } from "@/api/session";
import { type Answer as Said, type AskField, useAsk } from "@/parts/Ask";
import { Button } from "@/parts/Button";
import { Card } from "@/parts/Card";
import { Facts } from "@/parts/Facts";
import { Loaded } from "@/parts/States";
import { Time } from "@/parts/Time";
import { duration } from "@/parts/text";
import { useAct } from "@/parts/useAct";

type Known = Answer<"/api/v1/retry/policy">;

/** How requests of a rotator are retried, and changing it. */
export function Policy({ name }: { name: string }) {
  const policy = useQuery({ queryKey: ["pools", "policy", name], queryFn: ({ signal }) => api.get("/api/v1/retry/policy", { query: { pool: name }, signal }) });
  return (
    <Card title="Retry policy" actions={policy.data && <Change name={name} known={policy.data} />}>
      <Loaded query={policy}>
        {(found) => (
          <Facts
            facts={[
              ["Attempts", `at most ${found.max_attempts} in all`],
              ["Backoff", `${found.backoff_strategy}, from ${duration(found.base_delay)}, ×${found.multiplier}, at most ${duration(found.max_backoff_delay)}${found.jitter ? ", with jitter" : ""}`],
              ["Retried statuses", found.retry_status_codes.join(", ") || "none"],
              ["Whole request", found.timeout === null ? "no time limit" : `within ${duration(found.timeout)}`],
              ["Not idempotent", found.retry_non_idempotent ? "retried too" : "not retried"],
              ["Version", `${found.version}`],
              ["Changed", <Time at={found.updated_at} />],
            ]}
          />
        )}
      </Loaded>
    </Card>
  );
}

function Change({ name, known }: { name: string; known: Known }) {
  const may = useMay("pools:operate");
  const ask = useAsk();
  const change = useAct((said: Said) => api.put("/api/v1/retry/policy", { query: { pool: name, version: known.version }, body: bodyOf(said) }), {
    says: (after) => `New requests follow version ${after.version} of the policy`,
    changes: [["pools", "policy", name]],
  });
  return (
    <Button
      small
      why={may.why}
      busy={change.busy}
      onClick={async () => {
        const said = await ask({
          title: "Change the retry policy?",
          body: "New requests follow it at once, in this process; those under way keep theirs. It lasts until the program starts again.",
          confirm: "Change",
          reason: "may",
          fields: fieldsOf(known),
        });
        if (said) await change.run(said);
      }}
    >
      Change
    </Button>
  );
}

function fieldsOf(known: Known): readonly AskField[] {
  return [
    { name: "max_attempts", label: "Attempts in all", type: "number", value: String(known.max_attempts), must: true, hint: "1 to 10" },
    {
      name: "backoff_strategy",
      label: "Backoff",
      type: "select",
      value: known.backoff_strategy,
      options: [
        ["exponential", "exponential"],
        ["linear", "linear"],
        ["fixed", "fixed"],
      ],
    },
    { name: "base_delay", label: "First wait, in seconds", type: "number", value: String(known.base_delay), must: true },
    { name: "multiplier", label: "Times", type: "number", value: String(known.multiplier), must: true },
    { name: "max_backoff_delay", label: "Longest wait, in seconds", type: "number", value: String(known.max_backoff_delay), must: true },
    { name: "jitter", label: "With jitter", type: "checkbox", value: known.jitter ? "on" : "" },
    { name: "retry_status_codes", label: "Retried statuses", value: known.retry_status_codes.join(", "), hint: "500 to 599" },
    { name: "timeout", label: "Whole request, in seconds", type: "number", value: known.timeout === null ? "" : String(known.timeout), hint: "Empty: no time limit" },
    { name: "retry_non_idempotent", label: "Retry requests that are not idempotent too", type: "checkbox", value: known.retry_non_idempotent ? "on" : "" },
  ];
}

function bodyOf(said: Said) {
  const codes = (said["retry_status_codes"] ?? "").split(/[\s,]+/).filter(Boolean);
  return {
    max_attempts: Number(said["max_attempts"]),
    backoff_strategy: said["backoff_strategy"] as Known["backoff_strategy"],
    base_delay: Number(said["base_delay"]),
    multiplier: Number(said["multiplier"]),
    max_backoff_delay: Number(said["max_backoff_delay"]),
    jitter: said["jitter"] === "on",
    retry_status_codes: codes.map(Number),
    timeout: said["timeout"] ? Number(said["timeout"]) : null,
    retry_non_idempotent: said["retry_non_idempotent"] === "on",
    reason: said.reason,
  };
}
