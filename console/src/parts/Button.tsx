import type { ButtonHTMLAttributes, ReactNode } from "react";
import { Icon, type IconName } from "@/parts/Icon";

interface Props extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, "disabled" | "title"> {
  children?: ReactNode;
  icon?: IconName;
  look?: "primary" | "danger" | "plain" | "danger primary";
  small?: boolean;
  /** Why it cannot be pressed now: shown, and told to screen readers. Without a reason it can. */
  why?: string | undefined;
  /** It was pressed, and the answer is not here yet. */
  busy?: boolean;
  title?: string | undefined;
}

/** A button. One that cannot be pressed says why; it stays reachable, so that the reason can be read. */
export function Button({ children, icon, look, small = false, why, busy = false, onClick, className = "", title, type = "button", ...rest }: Props) {
  const barred = why !== undefined || busy;
  return (
    <button
      {...rest}
      type={barred ? "button" : type}
      className={`button ${look ?? ""} ${small ? "small" : ""} ${children === undefined ? "icon" : ""} ${className}`}
      aria-disabled={barred || undefined}
      aria-busy={busy || undefined}
      title={why ?? title}
      onClick={barred ? (event) => event.preventDefault() : onClick}
    >
      {icon && <Icon name={icon} size={14} />}
      {children}
      {why !== undefined && <span className="unseen"> ({why})</span>}
    </button>
  );
}
