import { useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { Routes } from "@/app/screens";
import { useLive } from "@/live/live";
import { Pill } from "@/parts/Badge";
import { Head } from "@/parts/Card";
import { Tabs } from "@/parts/Tabs";
import { Tokens } from "@/screens/access/Tokens";
import { Users } from "@/screens/access/Users";

/** Who may use the API and the console. */
function Access() {
  const users = useQuery({ queryKey: ["access", "users"], queryFn: ({ signal }) => api.get("/api/v1/access/users", { signal }) });
  const tokens = useQuery({ queryKey: ["access", "tokens"], queryFn: ({ signal }) => api.get("/api/v1/access/tokens", { signal }) });
  useLive([], [["access"]]);
  const live = tokens.data?.items.filter((token) => token.is_live).length;
  return (
    <>
      <Head title="Access">People sign in with a password; programs send a token.</Head>
      <Tabs
        label="Access"
        tabs={[
          { name: "users", title: <>Users {users.data && <Pill count={users.data.items.length} />}</>, body: () => <Users query={users} /> },
          { name: "tokens", title: <>Tokens {live !== undefined && <Pill count={live} />}</>, body: () => <Tokens query={tokens} /> },
        ]}
      />
    </>
  );
}

export const routes: Routes = { "/": Access };
