/** The keyboard: `/` filters, `g` and a letter goes, `?` explains. Nothing happens while somebody types. */
import { useLayoutEffect, useRef } from "react";
import { SCREENS } from "@/app/screens";

const PATIENCE = 2000;
const NEVER = Number.NEGATIVE_INFINITY;

export const KEYS: readonly (readonly [keys: string, does: string])[] = [
  ["/", "filter what is shown"],
  ["Ctrl K", "jump to a screen, or to an id"],
  ["j  k", "next and previous row"],
  ["Enter", "open the row"],
  ["x", "select the row"],
  ["n  p", "next and previous page"],
  ["?", "these keys"],
  ["Esc", "close, or leave a field"],
];

interface Acts {
  go(to: string): void;
  help(): void;
  jump(): void;
}

export function useKeys(acts: Acts): void {
  const latest = useRef(acts);
  latest.current = acts;
  useLayoutEffect(() => {
    let gone = NEVER; // not 0, which is when the page was opened
    const pressed = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        latest.current.jump();
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
      const now = performance.now();
      if (now - gone < PATIENCE) {
        gone = NEVER;
        const screen = SCREENS.find((one) => one.key === event.key);
        if (screen) {
          event.preventDefault();
          // The second key of a pair is not also "previous page" or "select the row".
          event.stopImmediatePropagation();
          latest.current.go(`/${screen.name}`);
        }
      } else if (event.key === "g") gone = now;
      else if (event.key === "?") latest.current.help();
      else if (event.key === "/") {
        event.preventDefault();
        const filter = document.querySelector<HTMLElement>("[data-filter]");
        if (filter) filter.focus();
        else latest.current.jump();
      }
    };
    window.addEventListener("keydown", pressed, true);
    return () => window.removeEventListener("keydown", pressed, true);
  }, []);
}

/** Whether the keys belong to a field, and not to the console. */
export function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}
