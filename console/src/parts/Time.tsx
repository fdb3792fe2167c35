import { useSyncExternalStore } from "react";
import { duration } from "@/parts/text";

const listeners = new Set<() => void>();
let ticker: number | undefined;
let now = Date.now();

/** The time in milliseconds, anew every second: one timer for the whole page. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now);
}

interface Props {
  at: string | number | null | undefined;
  /** Said when there is no time; a dash otherwise. */
  none?: string;
  /** Show the date and the time, and how long ago in the title. */
  absolute?: boolean;
  /** Something ends then: `20 s left`. */
  left?: boolean;
}

/** A point in time: how long ago, or how long until; the title has the date, in local time and UTC. */
export function Time({ at, none = "–", absolute = false, left = false }: Props) {
  const time = useNow();
  if (at === null || at === undefined) return <span className="muted">{none}</span>;
  const moment = typeof at === "number" ? at : Date.parse(at);
  if (Number.isNaN(moment)) return <span className="muted">{none}</span>;
  const date = new Date(moment);
  const exact = `${date.toLocaleString()} · ${date.toISOString()}`;
  return (
    <time className="num" dateTime={date.toISOString()} title={absolute ? `${ago(moment, time)} · ${date.toISOString()}` : exact}>
      {absolute ? stamp(date) : left ? ago(moment, time).replace(/^in (.*)/, "$1 left") : ago(moment, time)}
    </time>
  );
}

/** `5 min ago`, `in 20 s`, `now`. */
export function ago(moment: number, time: number): string {
  const seconds = (time - moment) / 1000;
  if (Math.abs(seconds) < 2) return "now";
  const coarse = Math.abs(seconds) >= 60 && Math.abs(seconds) < 3600 ? Math.round(Math.abs(seconds) / 60) * 60 : Math.floor(Math.abs(seconds));
  const said = duration(Math.max(coarse, 1)).replace(/\.\d+ s$/, " s");
  return seconds > 0 ? `${said} ago` : `in ${said}`;
}

/** `2026-03-01 14:05:09`, local. */
export function stamp(date: Date): string {
  const two = (value: number) => String(value).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

function subscribe(told: () => void): () => void {
  listeners.add(told);
  if (ticker === undefined) {
    now = Date.now();
    ticker = window.setInterval(() => {
      if (document.hidden) return;
      now = Date.now();
      for (const each of listeners) each();
    }, 1000);
  }
  return () => {
    listeners.delete(told);
    if (!listeners.size) {
      window.clearInterval(ticker);
      ticker = undefined;
    }
  };
}
