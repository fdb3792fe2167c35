import { useLocation, useNavigate } from "@tanstack/react-router";
import { useLayoutEffect, useRef } from "react";
import { isTyping } from "@/app/keys";
import { useUrl } from "@/app/url";
import { Button } from "@/parts/Button";
import { whole } from "@/parts/text";

declare module "@tanstack/react-router" {
  interface HistoryState {
    /** The pages that were gone through to get here: each one's `after`. */
    trail?: readonly string[];
  }
}

/**
 * Next and previous over keyset pages. The page is `?after=` in the URL; the way back is in the history entry, so that
 * it costs nothing and a shared link simply begins there.
 */
export function Pager({ next, shown, total }: { next: string | null | undefined; shown?: number; total?: number | undefined }) {
  const url = useUrl();
  const navigate = useNavigate();
  const trail = useLocation({ select: (location) => location.state.trail }) ?? [];
  const after = url.get("after");
  const turn = (to: string | undefined, way: readonly string[]) =>
    void navigate({
      to: ".",
      search: ((before: object) => ({ ...before, after: to ?? "" })) as never,
      state: (before) => ({ ...before, trail: way }),
    });
  const forth = next ? () => turn(next, [...trail, after ?? ""]) : undefined;
  const back = after ? () => turn(trail.at(-1) || undefined, trail.slice(0, -1)) : undefined;

  const latest = useRef({ forth, back });
  latest.current = { forth, back };
  useLayoutEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
      if (event.key === "n") latest.current.forth?.();
      if (event.key === "p") latest.current.back?.();
    };
    window.addEventListener("keydown", pressed);
    return () => window.removeEventListener("keydown", pressed);
  }, []);

  if (!forth && !back && total === undefined) return null;
  return (
    <nav className="pager row spread" aria-label="Pages">
      <span className="muted num">
        {shown !== undefined && `${whole(shown)} shown`}
        {total !== undefined && ` of ${whole(total)}`}
      </span>
      <span className="row">
        {after && trail.length > 1 && (
          <Button small icon="first" onClick={() => turn(undefined, [])}>
            First
          </Button>
        )}
        <Button small icon="left" why={back ? undefined : "This is the first page."} onClick={() => back?.()}>
          Previous
        </Button>
        <Button small icon="right" why={forth ? undefined : "There are no more."} onClick={() => forth?.()}>
          Next
        </Button>
      </span>
    </nav>
  );
}
