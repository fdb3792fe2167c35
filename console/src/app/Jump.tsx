import { type KeyboardEvent, useId, useState } from "react";
import { useSession } from "@/api/session";
import { useGo } from "@/app/Go";
import { SCREENS } from "@/app/screens";
import { to } from "@/app/url";
import { Dialog } from "@/parts/Ask";
import { Icon, type IconName } from "@/parts/Icon";
import { cut, seen } from "@/parts/text";

interface Target {
  readonly title: string;
  readonly to: string;
  readonly icon: IconName;
  readonly hint: string;
}

/** Type some letters of a screen, or paste an id. */
export function Jump({ close }: { close: () => void }) {
  const id = useId();
  const go = useGo();
  const { rights } = useSession();
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const found = targets(typed.trim(), rights);
  const follow = (target: Target | undefined) => {
    if (!target) return;
    close();
    go(target.to);
  };
  const pressed = (event: KeyboardEvent) => {
    if (event.key === "Enter") follow(found[at]);
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setAt((before) => (found.length ? (before + (event.key === "ArrowDown" ? 1 : -1) + found.length) % found.length : 0));
    }
  };
  return (
    <Dialog title="Jump to" close={close}>
      <input
        className="field"
        role="combobox"
        aria-label="A screen, or an id"
        aria-expanded="true"
        aria-controls={`${id}-list`}
        aria-activedescendant={found[at] ? `${id}-${at}` : undefined}
        placeholder="A screen, or an id"
        autoComplete="off"
        spellCheck={false}
        value={typed}
        onChange={(event) => {
          setTyped(event.target.value);
          setAt(0);
        }}
        onKeyDown={pressed}
      />
      <ul id={`${id}-list`} role="listbox" aria-label="Where to" className="jump-list">
        {found.map((target, index) => (
          <li key={target.to} id={`${id}-${index}`} role="option" aria-selected={index === at} onMouseEnter={() => setAt(index)} onClick={() => follow(target)}>
            <Icon name={target.icon} />
            <span>{target.title}</span>
            <kbd>{target.hint}</kbd>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

const BY_ID = ["letters", "workflows", "sagas", "outbox", "bulk", "guards"];

function targets(typed: string, rights: readonly string[]): Target[] {
  const allowed = SCREENS.filter((screen) => rights.includes(screen.right));
  const screens = allowed.filter((screen) => screen.title.toLowerCase().includes(typed.toLowerCase()));
  const isId = typed.length >= 6 && !/\s/.test(typed);
  const things = isId ? allowed.filter((screen) => BY_ID.includes(screen.name)) : [];
  return [
    ...screens.map((screen) => ({ title: screen.title, to: to(screen.name), icon: screen.icon, hint: `g ${screen.key}` })),
    ...things.map((screen) => ({ title: `${screen.title}: ${cut(seen(typed), 40)}`, to: to(screen.name, typed), icon: screen.icon, hint: "id" })),
  ];
}
