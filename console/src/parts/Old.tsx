import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { api } from "@/api/client";
import { useMay } from "@/api/session";
import { Dialog } from "@/parts/Ask";
import { Button } from "@/parts/Button";
import { Meter } from "@/parts/Spark";
import { Loaded } from "@/parts/States";
import { useSay } from "@/parts/Toasts";
import { plural, whole } from "@/parts/text";
import { stamp } from "@/parts/Time";

const MOST_DAYS = 36_500;
const DAY_MS = 86_400_000;
const SETTLES_MS = 300;

/** What is old, counted. `before` is the moment that it was counted for. */
export interface Counted {
  readonly matched: number;
  readonly before: string;
  /** How many are as old and stay, by why. */
  readonly kept?: Readonly<Record<string, number>>;
}

/** A part of what was agreed to: how many are to go still, and whether this is not the first part. */
export interface Part {
  readonly days: number;
  readonly before: string;
  readonly expected: number;
  readonly goes_on: boolean;
  readonly reason: string;
}

interface Props {
  title: string;
  /** What goes, and what stays. */
  children: ReactNode;
  right: string;
  /** "Delete", "Deleted", "would be deleted". */
  verb: readonly [now: string, done: string, would: string];
  /** What they are called: one, and many. */
  noun: readonly [one: string, many: string];
  /** What happened to them so long ago: "They succeeded". */
  since: string;
  days: number;
  /** Without a way back: a reason and the typed count. */
  forGood: boolean;
  count: (days: number, before: string, signal: AbortSignal) => Promise<{ matched: number; kept?: Readonly<Record<string, number>> }>;
  /** Do a part of it: how many that were, and how many are left. */
  act: (part: Part) => Promise<{ done: number; left: number }>;
  /** The first part of the query keys of what is shown. */
  changes: string;
  close: () => void;
}

/** Does away with what is old: an age, how many that are, a yes with their count, then a part at a time. */
export function Old({ title, children, right, verb, noun, since, days: usual, forGood, count, act, changes, close }: Props) {
  const id = useId();
  const may = useMay(right);
  const say = useSay();
  const queries = useQueryClient();
  const [typedDays, setTypedDays] = useState(String(usual));
  const [days, setDays] = useState(usual);
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const [progress, setProgress] = useState<{ done: number; of: number }>();
  const stops = useRef(false);
  const isGone = useRef(false);
  const asked = daysOf(typedDays);
  useEffect(() => {
    if (asked === undefined || asked === days) return;
    const timer = window.setTimeout(() => setDays(asked), SETTLES_MS);
    return () => window.clearTimeout(timer);
  }, [asked, days]);
  useEffect(() => {
    isGone.current = false;
    return () => {
      isGone.current = true;
    };
  }, []);
  // Not below the screen's own key: what is live there would count all of it every few seconds.
  const counted = useQuery({
    queryKey: ["old", right, title, days],
    queryFn: async ({ signal }): Promise<Counted> => {
      // By the store's clock: a browser's may be wrong, and what is deleted is gone.
      const { now } = await api.get("/api/v1/status", { signal });
      const before = new Date(Date.parse(now) - days * DAY_MS).toISOString();
      return { ...(await count(days, before, signal)), before };
    },
    staleTime: Infinity,
    gcTime: 0,
  });
  const matched = counted.data?.matched ?? 0;
  const isCounting = counted.isFetching || asked !== days;
  const why = may.why ?? barred({ asked, isCounting, matched, reason, typed, forGood, nouns: noun[1] });

  const work = async (found: Counted) => {
    let [done, left] = [0, found.matched];
    stops.current = false;
    setProgress({ done, of: found.matched });
    try {
      do {
        const part = await act({ days, before: found.before, expected: left, goes_on: done > 0, reason });
        done += part.done;
        left = part.left;
        setProgress({ done, of: found.matched });
      } while (left > 0 && !stops.current && !isGone.current);
      say.done(`${verb[1]} ${plural(done, ...noun)}${left > 0 ? `; ${whole(left)} more were to go` : ""}`);
      if (!isGone.current) close();
    } catch (error) {
      if (done) say.done(`${verb[1]} ${plural(done, ...noun)} before it failed`);
      say.failed(error);
      setTyped("");
      await counted.refetch();
    } finally {
      setProgress(undefined);
      await queries.invalidateQueries({ queryKey: [changes] });
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (why === undefined && !progress && counted.data) void work(counted.data);
  };
  const end = () => {
    if (progress) stops.current = true;
    else close();
  };
  return (
    <Dialog title={title} close={end}>
      <form className="stack" onSubmit={submit}>
        <div className="wrap-any">{children}</div>
        <div>
          <label className="label" htmlFor={`${id}-days`}>
            Older than, in days
          </label>
          <input
            id={`${id}-days`} className="field num" type="number" min={0} max={MOST_DAYS} step={1} required autoComplete="off"
            value={typedDays} readOnly={progress !== undefined} aria-describedby={`${id}-hint`} onChange={(event) => setTypedDays(event.target.value)}
          />
          <p className="hint" id={`${id}-hint`}>
            {since} longer ago than that. 0: all of them.
          </p>
        </div>
        <Loaded query={counted} lines={2}>
          {(found) => (
            <div aria-live="polite" aria-busy={isCounting || undefined} data-matched={isCounting ? undefined : found.matched}>
              <p>
                <strong className="num">{plural(found.matched, ...noun)}</strong> {verb[2]}
                {days > 0 && <span className="muted"> (before {stamp(new Date(found.before))})</span>}.
              </p>
              {Object.entries(found.kept ?? {}).map(([reason, number]) => (
                <p key={reason} className="muted">
                  {plural(number, ...noun)} as old would stay: {reason}.
                </p>
              ))}
            </div>
          )}
        </Loaded>
        <div>
          <label className="label" htmlFor={`${id}-reason`}>
            Reason {!forGood && <span className="muted">(optional)</span>}
          </label>
          <textarea
            id={`${id}-reason`} className="field" rows={2} maxLength={500} dir="auto" required={forGood}
            value={reason} readOnly={progress !== undefined} onChange={(event) => setReason(event.target.value)}
          />
          <p className="hint">It goes into the audit trail, with your name.</p>
        </div>
        {forGood && matched > 0 && (
          <div>
            <label className="label" htmlFor={`${id}-count`}>
              Type {whole(matched)} to confirm
            </label>
            <input
              id={`${id}-count`} className="field num" inputMode="numeric" autoComplete="off"
              value={typed} readOnly={progress !== undefined} onChange={(event) => setTyped(event.target.value)}
            />
          </div>
        )}
        {progress && <Meter value={progress.done} most={progress.of} label={verb[1]} />}
        <div className="row ask-buttons">
          <Button onClick={end}>{progress ? "Stop" : "Cancel"}</Button>
          <Button type="submit" look={forGood ? "danger primary" : "primary"} busy={progress !== undefined} why={why}>
            {matched ? `${verb[0]} ${plural(matched, ...noun)}` : verb[0]}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function daysOf(text: string): number | undefined {
  const days = text.trim() === "" ? NaN : Number(text);
  return Number.isInteger(days) && days >= 0 && days <= MOST_DAYS ? days : undefined;
}

interface Stand {
  asked: number | undefined;
  isCounting: boolean;
  matched: number;
  reason: string;
  typed: string;
  forGood: boolean;
  nouns: string;
}

/** Why it cannot be done yet. */
function barred({ asked, isCounting, matched, reason, typed, forGood, nouns }: Stand): string | undefined {
  if (asked === undefined) return `Say how old in whole days, from 0 to ${whole(MOST_DAYS)}.`;
  if (isCounting) return `The ${nouns} are being counted.`;
  if (!matched) return "None is as old, so there is nothing to do.";
  if (!forGood) return undefined;
  if (!reason.trim()) return "Say why first.";
  if (typed.replace(/[\s,.]/g, "") !== String(matched)) return `Type ${matched} first.`;
  return undefined;
}
