import "@/parts/states.css";
import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { asProblem } from "@/api/problem";
import { Button } from "@/parts/Button";
import { Icon, type IconName } from "@/parts/Icon";
import { Skeleton } from "@/parts/Skeleton";
import { Text } from "@/parts/Text";

/** Nothing is there: why that is so, and what would change it. */
export function Empty({ title, children, icon = "check", action }: { title: string; children?: ReactNode; icon?: IconName; action?: ReactNode }) {
  return (
    <div className="state">
      <Icon name={icon} size={22} />
      <h2>{title}</h2>
      {children !== undefined && <div className="state-words">{children}</div>}
      {action}
    </div>
  );
}

/** What went wrong, in the server's words, with what can be done about it. */
export function Failure({ error, retry, compact = false }: { error: unknown; retry?: () => void; compact?: boolean }) {
  const problem = asProblem(error);
  return (
    <div className={compact ? "state bad-state compact" : "state bad-state"} role="alert">
      <Icon name="warning" size={compact ? 16 : 22} />
      <h2>{problem.title}</h2>
      <div className="state-words">
        <Text value={problem.detail || problem.title} />
        {problem.status === 403 && <p>An admin can change that under Access.</p>}
        {problem.code === "schema_not_current" && (
          <p>
            Run <code>holdfast db upgrade</code>, then try again.
          </p>
        )}
      </div>
      {retry && (
        <Button icon="refresh" onClick={retry}>
          Try again
        </Button>
      )}
    </div>
  );
}

/** A query's three states at once: `<Loaded query={letters}>{(page) => …}</Loaded>`. Old data stays while new comes. */
export function Loaded<T>({ query, children, lines = 6 }: { query: UseQueryResult<T>; children: (data: T) => ReactNode; lines?: number }) {
  if (query.data !== undefined)
    return (
      <>
        {query.isError && <Failure compact error={query.error} retry={() => void query.refetch()} />}
        {children(query.data)}
      </>
    );
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  return <Skeleton lines={lines} />;
}
