import "@/screens/pools/pools.css";
import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { type Answer, api } from "@/api/client";
import { useMay } from "@/api/session";
import { Go } from "@/app/Go";
import { to } from "@/app/url";
import { useLive } from "@/live/live";
import { useAsk } from "@/parts/Ask";
import { Status, Tag } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Card, Head } from "@/parts/Card";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Text } from "@/parts/Text";
import { Time } from "@/parts/Time";
import { cut, duration, percent, seen } from "@/parts/text";
import { useAct } from "@/parts/useAct";
import { stateOf } from "@/screens/pools/List";
import { Rotator } from "@/screens/pools/Rotator";

type Pool = Answer<"/api/v1/pools/{name}">;
type Member = Pool["members"][number];

/** One pool: its endpoints, how each of them does, and taking one out of use. */
export function One() {
  const { id: name } = useParams({ strict: false }) as { id: string };
  const pool = useQuery({
    queryKey: ["pools", "one", name],
    queryFn: ({ signal }) => api.get("/api/v1/pools/{name}", { path: { name }, signal }),
    refetchInterval: 5000,
  });
  useLive(["event"], [["pools"]]);
  return (
    <Loaded query={pool}>
      {(found) => (
        <>
          <Head
            title={<Text value={found.name} />}
            back={<Go to={to("pools")}>Pools</Go>}
            badge={<Status state={stateOf(found)} />}
          >
            {found.available} of {found.members.length} endpoints may be called; chosen by {found.choose}; {found.opens_by}.
          </Head>
          <div className="stack">
            <Card title="Endpoints" flush>
              <Table
                label="Endpoints"
                columns={columns(found)}
                rows={found.members}
                id={(member) => member.id}
                empty={<Empty title="No endpoints" icon="fork">Every call is refused. Add one in the program: <code>pool.add("https://a")</code></Empty>}
              />
            </Card>
            {found.is_rotator && <Rotator name={found.name} />}
          </div>
        </>
      )}
    </Loaded>
  );
}

function columns(pool: Pool): readonly Column<Member>[] {
  return [
    { title: "Endpoint", cell: (member) => <Endpoint member={member} />, width: "18%" },
    { title: "State", cell: (member) => <Status state={member.control === "isolated" ? "draining" : member.state} title={member.control === "isolated" ? "Drained by hand" : ""} />, width: "110px" },
    { title: "Success", cell: (member) => (member.success_rate === null ? "–" : percent(member.success_rate, 0)), width: "80px", right: true },
    { title: "Latency", cell: (member) => (member.latency === null ? "–" : duration(member.latency)), width: "80px", right: true, optional: true },
    { title: "In flight", cell: (member) => member.in_flight, width: "80px", right: true, optional: true },
    { title: "Weight", cell: (member) => member.weight, width: "70px", right: true, optional: true },
    { title: "Score", cell: (member) => member.score.toFixed(2), width: "70px", right: true, optional: true },
    { title: "Tried again", cell: (member) => <Time at={member.next_test_at} />, width: "100px", optional: true },
    { title: "Last error", cell: (member) => <Text value={member.last_error} most={160} />, optional: true },
    { title: "", label: "Actions", cell: (member) => <Acts pool={pool} member={member} />, width: "112px", right: true },
  ];
}

function Endpoint({ member }: { member: Member }) {
  return (
    <span className="pools-endpoint">
      <Text value={member.id} most={80} />
      {member.region && <Tag>{cut(seen(member.region), 30)}</Tag>}
    </span>
  );
}

function Acts({ pool, member }: { pool: Pool; member: Member }) {
  const may = useMay("pools:operate");
  const ask = useAsk();
  const path = { name: pool.name, endpoint: member.id };
  const said = cut(seen(member.id), 60);
  const changes = [["pools"]] as const;
  const drain = useAct((reason: string) => api.post("/api/v1/pools/{name}/members/{endpoint}/drain", { path, body: { reason } }), { says: `${said} gets no more calls`, changes });
  const enable = useAct((reason: string) => api.post("/api/v1/pools/{name}/members/{endpoint}/enable", { path, body: { reason } }), { says: `${said} gets calls again`, changes });
  const reset = useAct((reason: string) => api.post("/api/v1/pools/{name}/members/{endpoint}/reset", { path, body: { reason } }), { says: `The breaker of ${said} is closed`, changes });
  if (member.control !== "auto")
    return (
      <Button
        small
        why={may.why}
        busy={enable.busy}
        onClick={async () => {
          const answer = await ask({ title: `Give ${said} calls again?`, body: "Its breaker is closed, and decides by itself.", confirm: "Enable", reason: "may" });
          if (answer) await enable.run(answer.reason);
        }}
      >
        Enable
      </Button>
    );
  const others = pool.members.filter((one) => one.available && one.id !== member.id).length;
  return (
    <span className="pools-acts">
      {member.state !== "closed" && (
        <Button
          small
          icon="refresh"
          aria-label={`Reset ${said}`}
          title="Close its breaker"
          why={may.why}
          busy={reset.busy}
          onClick={async () => {
            const answer = await ask({ title: `Close the breaker of ${said}?`, body: "Its failures are forgotten and it gets calls at once. If it is still down, it opens again.", confirm: "Reset", reason: "may" });
            if (answer) await reset.run(answer.reason);
          }}
        />
      )}
      <Button
        small
        why={may.why}
        busy={drain.busy}
        onClick={async () => {
          const answer = await ask({
            title: `Drain ${said}?`,
            body: `It gets no more calls from this process until it is enabled; calls under way finish. ${others ? `${others} other ${others === 1 ? "endpoint" : "endpoints"} may be called.` : "No other endpoint may be called: every call of this pool will be refused."}`,
            confirm: "Drain",
            danger: true,
            reason: "must",
          });
          if (answer) await drain.run(answer.reason);
        }}
      >
        Drain
      </Button>
    </span>
  );
}
