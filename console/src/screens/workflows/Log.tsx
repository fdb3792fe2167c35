import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { api } from "@/api/client";
import { useUrl } from "@/app/url";
import { Status } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Card } from "@/parts/Card";
import { Pager } from "@/parts/Pager";
import { micros, span } from "@/parts/span";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Text } from "@/parts/Text";
import { duration } from "@/parts/text";
import { Time } from "@/parts/Time";
import { wordsOf } from "@/parts/tones";
import { type LogItem, type Past, type Workflow } from "@/screens/workflows/states";

const AT_ONCE = 200;
const SETTLES_MS = 150;

function columnsOf(began: string | null): readonly Column<LogItem>[] {
  return [
    { title: "No.", cell: (one) => one.seq, width: "60px", right: true },
    {
      title: "What",
      cell: (one) => (
        <>
          {one.type.replaceAll("_", " ")}
          {said(one) && (
            <span className="workflows-log-facts muted">
              <Text value={said(one)} most={300} />
            </span>
          )}
        </>
      ),
      width: "160px",
    },
    { title: "Stage", cell: (one) => (one.stage ? <Text value={one.stage} most={60} /> : null), width: "18%" },
    { title: "Facts", cell: (one) => (said(one) ? <Text value={said(one)} most={300} /> : null), optional: true },
    { title: "At", cell: (one) => <Time at={one.at} absolute />, width: "170px", right: true, optional: true },
    { title: "After", cell: (one) => (began && micros(one.at) >= micros(began) ? duration(span(began, one.at)) : null), width: "100px", right: true },
  ];
}

/** Everything that happened, in the order in which it did. */
export function Log({ workflow, at }: { workflow: Workflow; at: number | undefined }) {
  const url = useUrl();
  const { id, start_time: began } = workflow;
  const columns = useMemo(() => columnsOf(began), [began]);
  const query = { after: Number(url.get("after") ?? 0) || 0, limit: AT_ONCE };
  const log = useQuery({
    queryKey: ["workflows", id, "log", query],
    queryFn: ({ signal }) => api.get("/api/v1/workflows/{id}/log", { path: { id }, query, signal }),
    placeholderData: (before) => before,
  });
  return (
    <div className="stack workflows-log">
      <Card title="Log" flush>
        <Loaded query={log}>
          {(page) => (
            <Table
              label="Log"
              columns={columns}
              rows={page.items.filter((one) => at === undefined || one.seq <= at).map((one, index) => ({ ...one, index }))}
              id={(one) => `${one.seq} ${(one as LogItem & { index: number }).index}`}
              empty={<Empty title="Nothing by then">The log is empty up to here.</Empty>}
            />
          )}
        </Loaded>
      </Card>
      <Pager next={log.data?.next} shown={log.data?.items.length} />
    </div>
  );
}

/** A slider over the log: how everything stood after any transaction. The number is `?at=` in the URL. */
export function Moments({ workflow, past }: { workflow: Workflow; past: Past | undefined }) {
  const url = useUrl();
  const last = workflow.version;
  const held = momentOf(url.get("at"), last);
  const [drawn, setDrawn] = useState<number>();
  useEffect(() => {
    if (drawn === undefined) return;
    const timer = window.setTimeout(() => {
      url.set({ at: drawn === last ? null : String(drawn) }, { replace: true });
      setDrawn(undefined);
    }, SETTLES_MS);
    return () => window.clearTimeout(timer);
  }, [drawn, last, url]);
  const at = drawn ?? held ?? last;
  return (
    <div className={`row workflows-moments${held === undefined ? "" : " is-past"}`}>
      <label htmlFor="workflows-at">As of</label>
      <Button small icon="left" aria-label="One transaction back" why={at > 0 ? undefined : "This is the beginning."} onClick={() => setDrawn(at - 1)} />
      <input id="workflows-at" type="range" min={0} max={last} value={at} onChange={(event) => setDrawn(Number(event.target.value))} aria-valuetext={at === last ? "now" : `transaction ${at} of ${last}`} />
      <Button small icon="right" aria-label="One transaction on" why={at < last ? undefined : "This is now."} onClick={() => setDrawn(at + 1)} />
      {held === undefined ? (
        <span className="muted num">now, {last} transactions</span>
      ) : (
        <>
          <span className="num">
            {at} of {last}
          </span>
          {past && <Status state={past.status} />}
          {past?.at && <Time at={past.at} absolute />}
          <Button small onClick={() => url.set({ at: null }, { replace: true })}>
            Back to now
          </Button>
        </>
      )}
    </div>
  );
}

/** The transaction that the URL names; undefined: now. */
export function momentOf(text: string | undefined, last: number): number | undefined {
  const at = text === undefined || text === "" ? NaN : Number(text);
  return Number.isInteger(at) && at >= 0 && at < last ? at : undefined;
}

/** What facts are that are so many seconds. */
const SPANS: ReadonlySet<string> = new Set(["delay", "limit"]);

function said(one: LogItem): string {
  const facts = Object.entries(one.facts).filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && !value.length));
  return facts.map(([name, value]) => (name === "status" ? wordsOf(String(value)) : `${name} ${word(name, value)}`)).join(", ");
}

function word(name: string, value: unknown): string {
  if (typeof value === "number" && SPANS.has(name)) return duration(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
