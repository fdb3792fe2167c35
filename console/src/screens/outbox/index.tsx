import type { Routes } from "@/app/screens";
import { List } from "@/screens/outbox/List";
import { One } from "@/screens/outbox/One";

export const routes: Routes = { "/": List, "/$id": One };
