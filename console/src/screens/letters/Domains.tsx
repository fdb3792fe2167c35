import { useQuery } from "@tanstack/react-query";
import { type Answer, api } from "@/api/client";
import { useMay } from "@/api/session";
import { Go } from "@/app/Go";
import { to, useUrl } from "@/app/url";
import { useAsk } from "@/parts/Ask";
import { Status, Tag } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Card } from "@/parts/Card";
import { Pager } from "@/parts/Pager";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Text } from "@/parts/Text";
import { duration, whole } from "@/parts/text";
import { Time } from "@/parts/Time";
import { useAct } from "@/parts/useAct";

type Domain = Answer<"/api/v1/letters/domains">["items"][number];

const WAYS: Readonly<Record<string, { readonly says: string; readonly tone: "good" | "warn" | "bad" }>> = {
  clear: { says: "may go", tone: "good" },
  trial: { says: "one on trial", tone: "warn" },
  barred: { says: "barred", tone: "bad" },
};

const COLUMNS: readonly Column<Domain>[] = [
  { title: "Domain", cell: (one) => <Text value={one.domain} most={60} />, width: "20%" },
  { title: "Standing", cell: (one) => <Way domain={one} />, width: "120px" },
  { title: "Why", cell: (one) => <Why domain={one} />, optional: true },
  { title: "Waiting", cell: (one) => whole(one.pending), width: "90px", right: true },
  { title: "In all", cell: (one) => whole(one.total), width: "90px", right: true, optional: true },
  { title: "Replayed", cell: (one) => <Tag>{one.replayed_here ? "here" : "by workers"}</Tag>, width: "110px", optional: true },
  { title: "Do", cell: (one) => <Pause domain={one} />, width: "110px", right: true },
];

/** Every domain, and whether its letters may go out now. */
export function Domains() {
  const url = useUrl();
  const query = { after: url.get("after"), limit: 100 };
  const domains = useQuery({
    queryKey: ["letters", "domains", query],
    queryFn: ({ signal }) => api.get("/api/v1/letters/domains", { query, signal }),
    placeholderData: (before) => before,
  });
  return (
    <div className="stack">
      <Card flush>
        <Loaded query={domains}>
          {(page) => (
            <Table
              label="Domains"
              columns={COLUMNS}
              rows={page.items}
              id={(one) => one.domain}
              href={(one) => to("letters", null, { domain: one.domain })}
              empty={<Empty title="No domains">A domain appears with its first letter, or when a program registers how to replay it.</Empty>}
            />
          )}
        </Loaded>
      </Card>
      <Pager next={domains.data?.next} shown={domains.data?.items.length ?? 0} />
    </div>
  );
}

function Way({ domain }: { domain: Domain }) {
  const way = WAYS[domain.way];
  return <Status state={domain.paused ? "paused" : (way?.says ?? domain.way)} tone={domain.paused ? "warn" : (way?.tone ?? "quiet")} />;
}

function Why({ domain }: { domain: Domain }) {
  if (!domain.reason && !domain.paused) return <span className="muted">–</span>;
  return (
    <span>
      <Text value={domain.reason} most={160} />
      {domain.paused_until && (
        <>
          {" "}
          until <Time at={domain.paused_until} />
        </>
      )}
      {domain.retry_after !== null && <span className="muted"> next try in {duration(domain.retry_after)}</span>}{" "}
      {!domain.paused && domain.way !== "clear" && <Go to={to("breakers", domain.domain)}>the breaker</Go>}
    </span>
  );
}

function Pause({ domain }: { domain: Domain }) {
  const may = useMay("letters:operate");
  const ask = useAsk();
  const pause = useAct(
    ({ reason, minutes }: { reason: string; minutes: number }) =>
      api.post("/api/v1/letters/domains/pause", {
        body: { domain: domain.domain, reason, until: minutes > 0 ? new Date(Date.now() + minutes * 60_000).toISOString() : null },
      }),
    { says: "Paused", changes: [["letters"]] },
  );
  const resume = useAct((reason: string) => api.post("/api/v1/letters/domains/resume", { body: { domain: domain.domain, reason } }), {
    says: "Letters go again",
    changes: [["letters"]],
  });
  if (domain.paused)
    return (
      <Button
        small
        icon="play"
        why={may.why}
        busy={resume.busy}
        onClick={async () => {
          const answer = await ask({ title: "Let these letters go again?", body: `Workers replay what waits: ${whole(domain.pending)} now.`, confirm: "Resume", reason: "may" });
          if (answer) await resume.run(answer.reason);
        }}
      >
        Resume
      </Button>
    );
  return (
    <Button
      small
      icon="pause"
      why={may.why}
      busy={pause.busy}
      onClick={async () => {
        const answer = await ask({
          title: "Pause this domain?",
          body: "No letter of it is replayed, on any host, until it is resumed. New failures are still kept.",
          confirm: "Pause",
          reason: "must",
          fields: [{ name: "minutes", label: "Minutes", type: "number", hint: "It goes on by itself after so long; empty: until somebody resumes it." }],
        });
        if (answer) await pause.run({ reason: answer.reason, minutes: Number(answer["minutes"]) || 0 });
      }}
    >
      Pause
    </Button>
  );
}
