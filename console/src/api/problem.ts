/** A refusal of the API (RFC 9457), or the network's. `status` is 0 when nobody answered. */
export class Problem extends Error {
  override readonly name = "Problem";
  readonly status: number;
  readonly title: string;
  /** The sentence for people. */
  readonly detail: string;
  /** The code for programs: `letter_not_found`, `changed_meanwhile`, … */
  readonly code: string;
  readonly retryAfter: number | undefined;
  /** What else is told: for instance `fields` of a form, or the `right` that is missing. */
  readonly details: Readonly<Record<string, unknown>>;

  constructor(status: number, document: Readonly<Record<string, unknown>>, retryAfter?: number) {
    const title = text(document["title"]) ?? (status === 0 ? "The server cannot be reached" : `Status ${status}`);
    const detail = text(document["message"]) ?? text(document["detail"]) ?? "";
    super(detail || title);
    this.status = status;
    this.title = title;
    this.detail = detail;
    this.code = text(document["error"]) ?? "";
    this.retryAfter = retryAfter;
    this.details = (document["details"] ?? {}) as Readonly<Record<string, unknown>>;
  }

  get isOffline(): boolean {
    return this.status === 0;
  }

  get isMissing(): boolean {
    return this.status === 404;
  }
}

/** Any thrown value as a problem, so that every error state can show the same things. */
export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  const detail = error instanceof Error ? error.message : String(error);
  return new Problem(-1, { title: "The console made a mistake", message: detail });
}

function text(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
