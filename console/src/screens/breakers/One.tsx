import "@/screens/breakers/breakers.css";
import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { type Answer, api } from "@/api/client";
import { Go } from "@/app/Go";
import { to } from "@/app/url";
import { useLive } from "@/live/live";
import { Status, Tag } from "@/parts/Badge";
import { Card, Head } from "@/parts/Card";
import { Facts } from "@/parts/Facts";
import { Json } from "@/parts/Json";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Text } from "@/parts/Text";
import { Time } from "@/parts/Time";
import { duration, plural } from "@/parts/text";
import { Acts } from "@/screens/breakers/Acts";
import { Course } from "@/screens/breakers/Course";
import { Sharing } from "@/screens/breakers/Sharing";

type Breaker = Answer<"/api/v1/breakers/{name}">;
type Move = Breaker["course"]["moves"][number];

/** One breaker: where it stands, how it got there, who holds it, and what can be done. */
export function One() {
  const { id: name } = useParams({ strict: false }) as { id: string };
  const breaker = useQuery({
    queryKey: ["breakers", "one", name],
    queryFn: ({ signal }) => api.get("/api/v1/breakers/{name}", { path: { name }, signal }),
    refetchInterval: 5000,
  });
  useLive(["breakers", "event"], [["breakers", "one", name]]);
  return (
    <Loaded query={breaker}>
      {(found) => (
        <>
          <Head
            title={<Text value={found.service_name} />}
            back={<Go to={to("breakers")}>Breakers</Go>}
            badge={
              <>
                <Status state={found.state} />
                {found.pin_active && <Tag tone="warn">held by hand</Tag>}
              </>
            }
            actions={<Acts breaker={found} />}
          >
            {summary(found)}
          </Head>
          <div className="stack">
            <Sharing sharing={found.sharing} />
            <Card title="State over time">
              <Course breaker={found} />
            </Card>
            <div className="columns">
              <Stored breaker={found} />
              <div className="stack">
                <Fleet breaker={found} />
                {found.circuits.map((circuit, at) => (
                  <Card key={found.guards[at] ?? at} title="In this process" actions={found.guards[at] ? <Go to={to("guards", found.guards[at])}>Guard</Go> : undefined}>
                    <Facts
                      facts={[
                        ["State", <Status state={circuit.state} />],
                        ["Control", circuit.control === "auto" ? "" : circuit.control],
                        ["Opens by", circuit.opens_by],
                        ["Tried again in", circuit.remaining_open === null ? "" : duration(circuit.remaining_open)],
                        ["Opened by", circuit.opened_by],
                      ]}
                    />
                  </Card>
                ))}
              </div>
            </div>
            <Moves breaker={found} />
          </div>
        </>
      )}
    </Loaded>
  );
}

function summary(breaker: Breaker): string {
  if (breaker.pin_active) return breaker.state === "open" ? "Held open by an operator: every process refuses its calls." : breaker.state === "closed" ? "Held closed by an operator: every call goes through, and it never trips." : "Held half-open by an operator.";
  if (breaker.state !== "closed" && !breaker.stored) return "This process has opened it and refuses its calls. The store, and with it the other processes, has not heard of it yet.";
  if (breaker.state === "open") return "Calls are refused in every process until a probe may go.";
  if (breaker.state === "half_open") return "A few probes go through; what they come to decides.";
  return breaker.stored ? "Calls go through." : "Calls go through. It never moved, so nothing is stored of it yet.";
}

function Stored({ breaker }: { breaker: Breaker }) {
  return (
    <Card title="What is stored">
      <Facts
        facts={[
          ["Failures", breaker.failure_count],
          ["Successes", breaker.success_count],
          ["Opened", breaker.opened_at && <Time at={breaker.opened_at} />],
          ["Last failure", breaker.last_failure_at && <Time at={breaker.last_failure_at} />],
          ["Held until", breaker.pin_active ? <Time at={breaker.manual_override_expires_at} none="somebody clears it" /> : ""],
          ["Held by", breaker.controlled_by_id],
          ["Reason", breaker.control_reason],
          ["Changes of state so far", breaker.generation],
          ["Changed", breaker.updated_at && <Time at={breaker.updated_at} />],
        ]}
      />
      {Object.keys(breaker.metadata).length > 0 && <Json value={breaker.metadata} />}
    </Card>
  );
}

function Fleet({ breaker }: { breaker: Breaker }) {
  const { fleet, sharing } = breaker;
  const isQuiet = !fleet.votes.length && !fleet.leases.length && !fleet.results.length && !fleet.may_be_tried_at;
  return (
    <Card title="Between processes">
      {isQuiet ? (
        <p className="muted">No votes, no probes: nothing is being decided. {plural(sharing.quorum, "process", "processes")} must see an outage before all of them open.</p>
      ) : (
        <Facts
          facts={[
            ["May be tried", fleet.may_be_tried_at && <Time at={fleet.may_be_tried_at} />],
            ["Failed rounds of probes", fleet.failed_rounds || ""],
            ["Cause", fleet.cause],
            ["Votes to open", fleet.votes.length ? <Votes breaker={breaker} /> : ""],
            ["Probes under way", fleet.leases.length ? `${fleet.leases.length}` : ""],
            ["Probes so far", fleet.results.length ? `${fleet.results.filter((one) => !one.failed).length} of ${fleet.results.length} succeeded` : ""],
          ]}
        />
      )}
    </Card>
  );
}

function Votes({ breaker }: { breaker: Breaker }) {
  return (
    <ul>
      <li>
        {breaker.fleet.votes.length} of {breaker.sharing.quorum} needed
      </li>
      {breaker.fleet.votes.map((vote) => (
        <li key={vote.process}>
          <Text value={vote.process} most={80} mono /> <Time at={vote.at} />
        </li>
      ))}
    </ul>
  );
}

const COLUMNS: readonly Column<Move>[] = [
  { title: "When", cell: (move) => <Time at={move.at} />, width: "130px" },
  { title: "From", cell: (move) => (move.from_state === null ? "–" : <Status state={move.from_state} />), width: "120px", optional: true },
  { title: "To", cell: (move) => <Status state={move.to_state} />, width: "120px" },
  { title: "Cause", cell: (move) => <Text value={move.cause?.replaceAll("_", " ")} most={80} /> },
  { title: "Failures", cell: (move) => move.failure_count, width: "90px", right: true, optional: true },
  { title: "Seen", cell: (move) => (move.seen === "here" ? "in this process" : "in the store"), width: "120px", optional: true },
];

function Moves({ breaker }: { breaker: Breaker }) {
  const { moves, skipped, covers } = breaker.course;
  const rows = moves.map((move, at) => ({ ...move, at_index: at })).reverse();
  return (
    <Card title="Moves" flush>
      <Table
        label="Moves"
        columns={COLUMNS}
        rows={rows}
        id={(move) => `${(move as Move & { at_index: number }).at_index}`}
        empty={<Empty title="No moves yet">It has not moved since the server began to look.</Empty>}
      />
      <p className="muted breakers-covers">
        {skipped > 0 && `${plural(skipped, "move")} between two looks ${skipped === 1 ? "was" : "were"} not seen. `}
        {covers}
      </p>
    </Card>
  );
}
