import { useRouter } from "@tanstack/react-router";
import type { AnchorHTMLAttributes, MouseEvent, ReactNode } from "react";
import { address } from "@/api/base";

interface Props extends Omit<AnchorHTMLAttributes<HTMLAnchorElement>, "href"> {
  /** A path inside the console, from `to(…)`. */
  to: string;
  children: ReactNode;
}

/** A link to another screen: a real address, so that it opens in a new tab too. */
export function Go({ to, onClick, children, ...rest }: Props) {
  const router = useRouter();
  const follow = (event: MouseEvent<HTMLAnchorElement>) => {
    onClick?.(event);
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    router.history.push(address(to));
  };
  return (
    <a {...rest} href={address(to)} onClick={follow}>
      {children}
    </a>
  );
}

/** The same from code: `const go = useGo(); go(to("letters", id))`. */
export function useGo(): (to: string) => void {
  const router = useRouter();
  return (to) => router.history.push(address(to));
}
