import "@/app/login.css";
import { type FormEvent, useState } from "react";
import { asProblem, type Problem } from "@/api/problem";
import { useSignIn } from "@/api/session";
import { Button } from "@/parts/Button";
import { Mark } from "@/app/Mark";
import { duration } from "@/parts/text";

/** Who are you? Shown instead of everything else while the server does not know. */
export function Login() {
  const signIn = useSignIn();
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    setBusy(true);
    setProblem(undefined);
    try {
      await signIn(String(form.get("name")), String(form.get("password")));
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <main className="login">
      <form onSubmit={(event) => void submit(event)} aria-labelledby="login-title">
        <Mark size={36} />
        <h1 id="login-title">Sign in to Holdfast</h1>
        <div>
          <label className="label" htmlFor="login-name">
            Name
          </label>
          <input id="login-name" name="name" className="field" autoComplete="username" autoCapitalize="none" required autoFocus />
        </div>
        <div>
          <label className="label" htmlFor="login-password">
            Password
          </label>
          <input id="login-password" name="password" type="password" className="field" autoComplete="current-password" required />
        </div>
        {problem && (
          <p className="complaint" role="alert">
            {problem.status === 401 ? "Name or password is wrong." : problem.message}
            {problem.retryAfter !== undefined && ` Try again in ${duration(problem.retryAfter)}.`}
          </p>
        )}
        <Button type="submit" look="primary" busy={busy}>
          Sign in
        </Button>
        <p className="hint">
          No account? Somebody with a shell on the server can make one: <code>holdfast access add-user</code>
        </p>
      </form>
    </main>
  );
}
