import "@/screens/guards/guards.css";
import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { type Answer, api } from "@/api/client";
import { Go } from "@/app/Go";
import { to } from "@/app/url";
import { useLive } from "@/live/live";
import { Status, Tag } from "@/parts/Badge";
import { Card, Figure, Head } from "@/parts/Card";
import { Chart } from "@/parts/Chart";
import { Facts } from "@/parts/Facts";
import { Icon } from "@/parts/Icon";
import { Empty, Loaded } from "@/parts/States";
import { Text } from "@/parts/Text";
import { Time } from "@/parts/Time";
import { duration, percent, plural, short, whole } from "@/parts/text";
import { toneOf } from "@/parts/tones";
import { Explained, Numbers } from "@/screens/guards/Explained";
import { callsOf, failureShare, worstCase } from "@/screens/guards/figures";

type Guard = Answer<"/api/v1/guards/{name}">;
type Layer = Guard["layers"][number];

/** One guard: whether it lets calls through, what they came to, and what stands around them. */
export function One() {
  const { id: name } = useParams({ strict: false }) as { id: string };
  const guard = useQuery({
    queryKey: ["guards", "one", name],
    queryFn: ({ signal }) => api.get("/api/v1/guards/{name}", { path: { name }, signal }),
    refetchInterval: 5000,
  });
  useLive(["breakers", "event"], [["guards", "one", name]]);
  return (
    <Loaded query={guard}>
      {(found) => (
        <>
          <Head
            title={<Text value={found.name} />}
            back={<Go to={to("guards")}>Guards</Go>}
            badge={found.refusing.length ? <Tag tone="bad">refuses calls</Tag> : found.circuit ? <Status state={found.circuit.state} /> : undefined}
          >
            At worst one call becomes {worstCase(found.max_calls, found.max_seconds)}.
          </Head>
          <div className="stack">
            {found.refusing.map((one) => (
              <Card key={one.reason} title="Why it refuses calls now">
                <Explained explained={one} />
              </Card>
            ))}
            <Counted guard={found} />
            <div className="columns">
              <Card title="Around the call, outermost first">
                <Layers layers={found.layers} />
              </Card>
              <div className="stack">
                {found.warnings.length > 0 && <Warnings warnings={found.warnings} />}
                {found.circuit && <Breaker circuit={found.circuit} />}
                <Refusals guard={found} />
                {found.keeps_letters && <Letters guard={found} />}
              </div>
            </div>
          </div>
        </>
      )}
    </Loaded>
  );
}

function Counted({ guard }: { guard: Guard }) {
  const share = failureShare(guard.outcomes);
  const refused = guard.outcomes["rejected"] ?? 0;
  const { begins, calls, failures } = guard.minutes;
  const times = calls.map((_, minute) => Date.parse(begins) / 1000 + 60 * minute);
  return (
    <>
      <div className="figures">
        <Figure label="Calls" value={short(callsOf(guard.outcomes))} note={<>since <Time at={guard.since} /></>} />
        <Figure label="Failed" value={share === undefined ? "–" : percent(share)} note="of those that ran" {...(share ? { tone: "bad" as const } : {})} />
        <Figure label="Refused" value={short(refused)} note="never ran" {...(refused ? { tone: "warn" as const } : {})} />
        <Figure label="Half take" value={guard.latency ? duration(guard.latency.p50) : "–"} note={guard.latency ? `of the last ${whole(guard.latency.calls)}` : "no call yet"} />
        <Figure label="90 % within" value={guard.latency ? duration(guard.latency.p90) : "–"} />
        <Figure label="99 % within" value={guard.latency ? duration(guard.latency.p99) : "–"} note={guard.latency ? `longest ${duration(guard.latency.longest)}` : undefined} />
      </div>
      <Card title="Calls by the minute">
        <Chart
          label="Calls, failures and refusals by the minute"
          times={times}
          series={[
            { label: "Calls", values: calls, tone: "accent", area: true },
            { label: "Failed", values: failures, tone: "bad" },
            { label: "Refused", values: guard.minutes.refused, tone: "warn" },
          ]}
          height={150}
        />
        <div className="row guards-outcomes">
          {Object.entries(guard.outcomes).map(([kind, number]) => (
            <Tag key={kind} tone={kind === "success" ? "good" : toneOf(kind === "rejected" ? "refused" : kind === "partial" ? "pending" : "failed")}>
              {short(number)} {kind.replaceAll("_", " ")}
            </Tag>
          ))}
        </div>
      </Card>
    </>
  );
}

/** The layers as boxes in each other, as a call meets them. */
function Layers({ layers, at = 0 }: { layers: readonly Layer[]; at?: number }) {
  const layer = layers[at];
  if (!layer) return <div className="guards-call">the call</div>;
  return (
    <div className="guards-layer" data-kind={layer.kind}>
      <div className="guards-layer-head">
        <b>{layer.kind.replaceAll("_", " ")}</b> <Text value={withoutKind(layer)} />
      </div>
      {Object.keys(layer.numbers).length > 0 && (
        <details>
          <summary>numbers of now</summary>
          <Numbers numbers={layer.numbers} />
        </details>
      )}
      <Layers layers={layers} at={at + 1} />
    </div>
  );
}

function withoutKind({ kind, line }: Layer): string {
  const said = kind.replaceAll("_", " ");
  return line.startsWith(`${said}: `) ? line.slice(said.length + 2) : line.startsWith(`${said} `) ? line.slice(said.length + 1) : line;
}

function Warnings({ warnings }: { warnings: readonly string[] }) {
  return (
    <Card title="Perhaps meant otherwise" actions={<Go to={to("doctor")}>Doctor</Go>}>
      <ul className="stack">
        {warnings.map((warning) => (
          <li key={warning} className="guards-warning">
            <Icon name="warning" size={14} /> <Text value={warning} />
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Breaker({ circuit }: { circuit: NonNullable<Guard["circuit"]> }) {
  return (
    <Card title="Breaker in this process" actions={<Go to={to("breakers", circuit.name)}>All processes, and what can be done</Go>}>
      <Facts
        facts={[
          ["State", <Status state={circuit.state} />],
          ["Control", circuit.control === "auto" ? "" : circuit.control],
          ["Opens by", circuit.opens_by],
          ["Failures that count", circuit.failure_count],
          ["Tried again in", circuit.remaining_open === null ? "" : duration(circuit.remaining_open)],
          ["Opened by", circuit.opened_by],
          ["Shared", circuit.shared ? "with every process on the store" : "no, this process only"],
        ]}
      />
    </Card>
  );
}

function Refusals({ guard }: { guard: Guard }) {
  return (
    <Card title="Refusals">
      {guard.refusals.length === 0 ? (
        <Empty title="None">No call was refused since the server began to look. An open breaker, a full bulkhead, an empty rate limit or a deadline that has passed refuse calls before they run.</Empty>
      ) : (
        <div className="stack">
          {guard.refusals.map((one) => (
            <div key={`${one.by} ${one.reason}`} className="guards-refusal">
              <div className="row spread">
                <span>
                  <b>{one.reason.replaceAll("_", " ")}</b> by <Text value={one.by} most={80} />
                </span>
                <span className="muted">
                  {plural(one.count, "call")}, last <Time at={one.last_at} />
                </span>
              </div>
              {one.explained && <Explained explained={one.explained} brief />}
            </div>
          ))}
        </div>
      )}
    </Card>
  );
}

function Letters({ guard }: { guard: Guard }) {
  const states = Object.entries(guard.letters_by_status);
  return (
    <Card title="Dead letters kept" actions={<Go to={to("letters", null, { domain: guard.domain })}>Letters</Go>}>
      {states.length === 0 ? (
        <p className="muted">
          None of <Text value={guard.domain} />. A call that fails for good is kept here.
        </p>
      ) : (
        <div className="row">
          {states.map(([state, number]) => (
            <Go key={state} to={to("letters", null, { domain: guard.domain, status: state })}>
              <Tag tone={toneOf(state)}>
                {short(number)} {state.replaceAll("_", " ")}
              </Tag>
            </Go>
          ))}
        </div>
      )}
    </Card>
  );
}
