import type { Routes } from "@/app/screens";
import { List } from "@/screens/pools/List";
import { One } from "@/screens/pools/One";

export const routes: Routes = { "/": List, "/$id": One };
