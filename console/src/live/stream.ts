/**
 * One stream of the server's words for the whole page. It rests while nobody looks, and goes on where it was: the
 * server gets the id of the last word that was heard, and says `reset` when it no longer has what came after.
 */
import { address } from "@/api/base";

/** What the server tells: that something of a topic has changed, or an event of its process. */
export const TOPICS = ["letters", "breakers", "outbox", "workflows", "event"] as const;
export type Topic = (typeof TOPICS)[number];
export type Connection = "connecting" | "live" | "resting" | "lost";

type Heard = (topic: Topic | "reset", data: unknown) => void;

const RETRY_MS = 3000;

class Stream {
  #source: EventSource | undefined;
  #last: string | undefined;
  #state: Connection = "connecting";
  #timer: number | undefined;
  #isWanted = false;
  readonly #heard = new Set<Heard>();
  readonly #watching = new Set<() => void>();

  start(): void {
    if (this.#isWanted) return;
    this.#isWanted = true;
    document.addEventListener("visibilitychange", this.#looked);
    window.addEventListener("online", this.#looked);
    this.#looked();
  }

  stop(): void {
    this.#isWanted = false;
    document.removeEventListener("visibilitychange", this.#looked);
    window.removeEventListener("online", this.#looked);
    this.#close("connecting");
  }

  listen(heard: Heard): () => void {
    this.#heard.add(heard);
    return () => this.#heard.delete(heard);
  }

  readonly watch = (told: () => void): (() => void) => {
    this.#watching.add(told);
    return () => this.#watching.delete(told);
  };

  readonly state = (): Connection => this.#state;

  readonly #looked = (): void => {
    if (document.hidden) this.#close("resting");
    else if (this.#isWanted && !this.#source) this.#open();
  };

  #open(): void {
    window.clearTimeout(this.#timer);
    if (this.#state !== "lost") this.#set("connecting");
    const after = this.#last ? `?last_event_id=${encodeURIComponent(this.#last)}` : "";
    const source = new EventSource(address(`api/v1/events${after}`));
    this.#source = source;
    const hear = (topic: Topic | "reset") => (event: MessageEvent<string>) => {
      this.#last = event.lastEventId || this.#last;
      this.#set("live");
      const data = parsed(event.data);
      for (const heard of this.#heard) heard(topic, data);
    };
    for (const topic of TOPICS) source.addEventListener(topic, hear(topic));
    source.addEventListener("reset", hear("reset"));
    // After a pause the pages ask anew in any case: what they missed may be more than the server keeps.
    const isReturn = this.#last !== undefined;
    source.addEventListener("hello", (event: MessageEvent<string>) => {
      if (isReturn) hear("reset")(event);
      this.#last = event.lastEventId || this.#last;
      this.#set("live");
    });
    source.onopen = () => this.#set("live");
    source.onerror = () => {
      // The browser tries again by itself only after a stream that once was open; a refused one stays closed.
      this.#close("lost");
      this.#timer = window.setTimeout(this.#looked, RETRY_MS);
    };
  }

  #close(state: Connection): void {
    window.clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = undefined;
    this.#set(state);
  }

  #set(state: Connection): void {
    if (this.#state === state) return;
    this.#state = state;
    for (const told of this.#watching) told();
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

export const stream = new Stream();
