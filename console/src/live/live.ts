/** Keeps queries true: asked again when the server says that something has changed, at most once a second. */
import { type QueryKey, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import { type Connection, stream, type Topic } from "@/live/stream";

const AT_MOST_EVERY_MS = 1000;
const POLL_MS = 5000;

/**
 * `useLive(["letters"], [["letters"]])`: whenever the server tells of a topic, the queries under these keys are asked
 * again. Not every change is told, so they are also asked every five seconds. Nothing while the page is hidden.
 */
export function useLive(topics: readonly Topic[], keys: readonly QueryKey[]): void {
  const queries = useQueryClient();
  const wanted = JSON.stringify([topics, keys]);
  useEffect(() => {
    const [of, under] = JSON.parse(wanted) as [Topic[], QueryKey[]];
    let asked = performance.now();
    let timer: number | undefined;
    const ask = () => {
      timer = undefined;
      if (document.hidden) return; // since it was set; whoever looks again asks anew
      asked = performance.now();
      for (const queryKey of under) void queries.invalidateQueries({ queryKey });
    };
    const soon = () => {
      if (timer === undefined && !document.hidden) timer = window.setTimeout(ask, Math.max(0, asked + AT_MOST_EVERY_MS - performance.now()));
    };
    const stopListening = stream.listen((topic) => (topic === "reset" || of.includes(topic)) && soon());
    const poll = window.setInterval(soon, POLL_MS);
    const seen = () => !document.hidden && soon();
    document.addEventListener("visibilitychange", seen);
    return () => {
      stopListening();
      window.clearInterval(poll);
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [queries, wanted]);
}

/** The last events of the server's process, the newest first, as they come. */
export function useEvents<T>(most = 50): readonly T[] {
  const [events, setEvents] = useState<readonly T[]>([]);
  const limit = useRef(most);
  useEffect(
    () => stream.listen((topic, data) => topic === "event" && setEvents((before) => [data as T, ...before].slice(0, limit.current))),
    [],
  );
  return events;
}

export function useConnection(): Connection {
  return useSyncExternalStore(stream.watch, stream.state);
}
