import type { Answer } from "@/api/client";
import type { Option } from "@/parts/Filters";
import { micros } from "@/parts/span";
import { duration } from "@/parts/text";
import { type Tone, toneOf, wordsOf } from "@/parts/tones";

export type Row = Answer<"/api/v1/workflows">["items"][number];
export type Workflow = Answer<"/api/v1/workflows/{id}">;
export type StageRow = Workflow["stages"][number];
export type Graph = Answer<"/api/v1/workflows/{id}/graph">;
export type Past = Answer<"/api/v1/workflows/{id}/at/{seq}">;
export type LogItem = Answer<"/api/v1/workflows/{id}/log">["items"][number];

const COMPLETE: ReadonlySet<string> = new Set(["SUCCEEDED", "SKIPPED", "FAILED_CONTINUE", "TERMINAL", "STOPPED", "CANCELED"]);
const FAILED: ReadonlySet<string> = new Set(["TERMINAL", "STOPPED", "FAILED_CONTINUE"]);

export const STATUSES: readonly string[] = ["NOT_STARTED", "RUNNING", "PAUSED", "SUSPENDED", "REDIRECT", "BUFFERED", ...COMPLETE];

/** A sign for each state, as in the pictures: nobody has to tell colours apart. */
export const MARKS: Readonly<Record<string, string>> = {
  NOT_STARTED: "○", RUNNING: "●", PAUSED: "‖", SUSPENDED: "◔", REDIRECT: "↪", BUFFERED: "◌",
  SUCCEEDED: "✓", SKIPPED: "–", FAILED_CONTINUE: "!", TERMINAL: "✗", STOPPED: "■", CANCELED: "⊘",
}; // prettier-ignore

export function hasEnded(status: string): boolean {
  return COMPLETE.has(status);
}

export function hasFailed(status: string): boolean {
  return FAILED.has(status);
}

export function tone(status: string): Tone {
  return toneOf(status);
}

/** How long it took, or has taken by now; nothing before it has begun. */
export function took(start: string | null | undefined, end: string | null | undefined, status: string, now: number): string {
  if (!start) return "";
  const until = end ? micros(end) : hasEnded(status) ? undefined : now * 1000;
  return until === undefined ? "" : duration(Math.max(0, until - micros(start)) / 1e6);
}

/** Counts of the statuses that there are, and the others without. */
export function statusOptions(counts: Readonly<Record<string, number>> | undefined): readonly Option[] {
  return STATUSES.map((value) => ({ value, label: wordsOf(value), count: counts?.[value] ?? 0 })).sort((a, b) => b.count - a.count);
}

/** The value of a JSON text. Throws an error that says which field is wrong. */
export function jsonOf(text: string, what: string): unknown {
  if (!text.trim()) return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${what} is not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** The same where an object is wanted. */
export function objectOf(text: string, what: string): Record<string, unknown> {
  const value = jsonOf(text, what) ?? {};
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error(`${what} must be an object, such as {"order": {"id": 7}}.`);
  return value as Record<string, unknown>;
}
