/** What a state means to an operator. One map for everything, as in the CLI. */
export type Tone = "good" | "bad" | "warn" | "busy" | "quiet";

// prettier-ignore
const TONES: Readonly<Record<Tone, readonly string[]>> = {
  good: ["resolved", "replayed", "closed", "succeeded", "confirmed", "completed", "done", "active", "healthy", "ok", "up", "SUCCEEDED", "available", "alive", "pass", "enabled", "delivered"],
  bad: ["requires_review", "permanently_failed", "open", "failed", "lost", "abandoned", "stuck", "TERMINAL", "STOPPED", "CANCELED", "unhealthy", "down", "error", "dead", "forced_open", "broken", "revoked"],
  warn: ["pending", "half_open", "refused", "returned", "skipped", "unsettled", "released", "parked", "refunded", "compensating", "compensated", "aborted", "stale", "PAUSED", "SUSPENDED", "BUFFERED", "FAILED_CONTINUE", "warning", "degraded", "paused", "draining", "expiring", "forced_closed"],
  busy: ["replaying", "reviewing", "started", "in_flight", "scheduled", "running", "RUNNING", "REDIRECT", "probing", "info", "catching_up", "live"],
  quiet: ["expired", "archived", "rejected", "SKIPPED", "NOT_STARTED", "disabled", "idle", "unknown", "none", "ended"],
};

const BY_STATE: ReadonlyMap<string, Tone> = new Map(
  Object.entries(TONES).flatMap(([tone, states]) => states.map((state) => [state, tone as Tone] as const)),
);

// What is stored as TERMINAL has failed for good; the word alone says so to nobody.
const WORDS: ReadonlyMap<string, string> = new Map([["TERMINAL", "failed"]]);

/** A state in words, wherever one is shown. */
export function wordsOf(state: string): string {
  return WORDS.get(state) ?? state.replaceAll("_", " ").toLowerCase();
}

export function toneOf(state: string): Tone {
  return BY_STATE.get(state) ?? BY_STATE.get(state.toLowerCase()) ?? "quiet";
}
