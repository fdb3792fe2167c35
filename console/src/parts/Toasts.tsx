import "@/parts/toasts.css";
import { createContext, type ReactNode, useCallback, useContext, useRef, useState } from "react";
import { asProblem } from "@/api/problem";
import { Button } from "@/parts/Button";
import { cut, seen } from "@/parts/text";

interface Toast {
  readonly number: number;
  readonly text: string;
  readonly bad: boolean;
}

interface Say {
  /** It worked. Goes by itself. */
  done(text: string): void;
  /** It did not. Stays until somebody closes it. */
  failed(error: unknown): void;
}

const Sayer = createContext<Say>({ done: () => undefined, failed: () => undefined });

export function useSay(): Say {
  return useContext(Sayer);
}

export function ToastProvider({ children }: { children: ReactNode }) {
  const [toasts, setToasts] = useState<readonly Toast[]>([]);
  const number = useRef(0);
  const end = useCallback((which: number) => setToasts((before) => before.filter((one) => one.number !== which)), []);
  const add = useCallback(
    (text: string, bad: boolean) => {
      const made = { number: ++number.current, text: cut(seen(text), 400), bad };
      setToasts((before) => [...before.slice(-3), made]);
      if (!bad) window.setTimeout(() => end(made.number), 5000);
    },
    [end],
  );
  const say = useRef<Say>({
    done: (text) => add(text, false),
    failed: (error) => {
      const problem = asProblem(error);
      add(problem.detail ? `${problem.title}: ${problem.detail}` : problem.title, true);
    },
  });
  return (
    <Sayer.Provider value={say.current}>
      {children}
      <div className="toasts" role="status" aria-live="polite">
        {toasts.map((toast) => (
          <div key={toast.number} className={toast.bad ? "toast is-failure" : "toast"}>
            <bdi dir="auto">{toast.text}</bdi>
            <Button look="plain" small icon="close" aria-label="Close" onClick={() => end(toast.number)} />
          </div>
        ))}
      </div>
    </Sayer.Provider>
  );
}
