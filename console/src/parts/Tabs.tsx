import "@/parts/tabs.css";
import { type KeyboardEvent, type ReactNode, useEffect, useId, useRef } from "react";
import { useUrl } from "@/app/url";

export interface Tab {
  readonly name: string;
  readonly title: ReactNode;
  readonly body: () => ReactNode;
}

/** Tabs whose choice is `?tab=` in the URL; the first is the one without. */
export function Tabs({ tabs, label, param = "tab" }: { tabs: readonly Tab[]; label: string; param?: string }) {
  const url = useUrl();
  const id = useId();
  const at = Math.max(0, tabs.findIndex((tab) => tab.name === url.get(param)));
  const list = useRef<HTMLDivElement>(null);
  // Where there is no room for all of them the row scrolls: whoever comes by an address sees which one is chosen.
  useEffect(() => {
    const shown = list.current?.querySelector<HTMLElement>('[aria-selected="true"]');
    if (shown && list.current) list.current.scrollLeft = shown.offsetLeft - list.current.offsetLeft - (list.current.clientWidth - shown.offsetWidth) / 2;
  }, [at]);
  const choose = (index: number) => url.set({ [param]: index === 0 ? null : tabs[index]?.name }, { replace: true });
  const pressed = (event: KeyboardEvent<HTMLElement>) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    const next = (at + step + tabs.length) % tabs.length;
    choose(next);
    event.currentTarget.querySelectorAll<HTMLElement>('[role="tab"]')[next]?.focus();
  };
  return (
    <div className="tabs">
      <div ref={list} role="tablist" aria-label={label} onKeyDown={pressed}>
        {tabs.map((tab, index) => (
          <button
            key={tab.name}
            type="button"
            role="tab"
            id={`${id}-${tab.name}`}
            aria-selected={index === at}
            aria-controls={`${id}-panel`}
            tabIndex={index === at ? 0 : -1}
            onClick={() => choose(index)}
          >
            {tab.title}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${tabs[at]?.name}`} tabIndex={0}>
        {tabs[at]?.body()}
      </div>
    </div>
  );
}
