import "@/screens/doctor/doctor.css";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type Answer, api } from "@/api/client";
import type { Routes } from "@/app/screens";
import { useUrl } from "@/app/url";
import { Pill, Status, Tag } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Card, Head } from "@/parts/Card";
import { Filters } from "@/parts/Filters";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Tabs } from "@/parts/Tabs";
import { Text } from "@/parts/Text";
import { Time } from "@/parts/Time";
import { plural } from "@/parts/text";
import type { Tone } from "@/parts/tones";
import { useAct } from "@/parts/useAct";

type Diagnosis = Answer<"/api/v1/doctor">;
type Finding = Diagnosis["findings"][number];
type Rule = Answer<"/api/v1/doctor/rules">["items"][number];

const SEVERITIES: readonly (readonly [severity: string, title: string, tone: Tone])[] = [
  ["error", "Errors: work or calls are lost, or will be", "bad"],
  ["warning", "Warnings: work or calls may be lost under load or failure", "warn"],
  ["hint", "Hints: worth knowing", "busy"],
];

const RULES: readonly Column<Rule>[] = [
  { title: "Rule", cell: (rule) => <code>{rule.id}</code>, width: "80px" },
  { title: "Name", cell: (rule) => rule.name, width: "170px" },
  { title: "Severity", cell: (rule) => <Tag tone={toneFor(rule.severity)}>{rule.severity}</Tag>, width: "100px" },
  { title: "Why it matters", cell: (rule) => <span title={rule.why}>{rule.why}</span> },
];

/** What is wrong with policies and store, and what to do about it. */
function Doctor() {
  const ignore = useUrl().all("ignore");
  const queries = useQueryClient();
  const diagnosis = useQuery({
    queryKey: ["doctor", ignore],
    queryFn: ({ signal }) => api.get("/api/v1/doctor", { query: { ignore: [...ignore] }, signal }),
    placeholderData: (before) => before,
    refetchInterval: 30_000,
  });
  const rules = useQuery({ queryKey: ["doctor", "rules"], queryFn: ({ signal }) => api.get("/api/v1/doctor/rules", { signal }), staleTime: Number.POSITIVE_INFINITY });
  const look = useAct(
    async () => {
      const found = await api.get("/api/v1/doctor", { query: { ignore: [...ignore], fresh: true } });
      queries.setQueryData(["doctor", ignore], found);
      return found;
    },
    { says: (found) => (found.findings.length ? plural(found.findings.length, "finding") : "Nothing found") },
  );
  return (
    <>
      <Head
        title="Doctor"
        badge={diagnosis.data && <Status state={diagnosis.data.healthy ? "healthy" : "unhealthy"} />}
        actions={
          <Button icon="refresh" busy={look.busy} onClick={() => void look.run(undefined)}>
            Look again
          </Button>
        }
      >
        Looks at the policies and at the state of the store, and changes nothing.{" "}
        {diagnosis.data && (
          <>
            Looked <Time at={diagnosis.data.examined_at} />.
          </>
        )}
      </Head>
      <Tabs
        label="Doctor"
        tabs={[
          { name: "findings", title: "Findings", body: () => <Loaded query={diagnosis}>{(found) => <Findings diagnosis={found} rules={rules.data?.items ?? []} />}</Loaded> },
          {
            name: "rules",
            title: "Rules",
            body: () => (
              <Card flush>
                <Loaded query={rules}>{(found) => <Table label="Rules" columns={RULES} rows={found.items} id={(rule) => rule.id} />}</Loaded>
              </Card>
            ),
          },
        ]}
      />
    </>
  );
}

function Findings({ diagnosis, rules }: { diagnosis: Diagnosis; rules: readonly Rule[] }) {
  return (
    <div className="stack">
      <Filters fields={[{ name: "ignore", label: "Rules to leave out", several: true, free: true, options: rules.map((rule) => ({ value: rule.id, label: `${rule.id} ${rule.name}` })) }]} />
      {diagnosis.unseen.map((part) => (
        <p key={part} className="doctor-unseen">
          <Tag tone="warn">not looked at</Tag> <Text value={part} />
        </p>
      ))}
      {SEVERITIES.map(([severity, title, tone]) => (
        <Group key={severity} title={title} tone={tone} findings={diagnosis.findings.filter((one) => one.severity === severity)} />
      ))}
      {diagnosis.findings.length === 0 && <Empty title="Nothing found">Every rule that the doctor knows is kept. The tab Rules lists them.</Empty>}
    </div>
  );
}

function Group({ title, tone, findings }: { title: string; tone: Tone; findings: readonly Finding[] }) {
  const url = useUrl();
  if (!findings.length) return null;
  return (
    <Card title={title} actions={<Pill count={findings.length} tone={tone} />}>
      <ul className="doctor-findings">
        {findings.map((finding) => (
          <li key={`${finding.rule} ${finding.where} ${finding.what}`}>
            <div className="row spread">
              <span className="row">
                <Tag tone={tone}>{finding.rule}</Tag>
                <b>
                  <Text value={finding.where} />
                </b>
                <span className="muted">{finding.name}</span>
              </span>
              <Button small look="plain" aria-label={`Leave out ${finding.rule}`} onClick={() => url.set({ ignore: [...new Set([...url.all("ignore"), finding.rule])] })}>
                Leave out
              </Button>
            </div>
            <p>
              <Text value={finding.what} />
            </p>
            <p className="doctor-fix">
              <span className="muted">Do: </span>
              <Text value={finding.fix} />
            </p>
            <p className="muted">{finding.why}</p>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function toneFor(severity: string): Tone {
  return SEVERITIES.find(([name]) => name === severity)?.[2] ?? "quiet";
}

export const routes: Routes = { "/": Doctor };
