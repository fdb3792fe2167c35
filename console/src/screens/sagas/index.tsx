import type { Routes } from "@/app/screens";
import { List } from "@/screens/sagas/List";
import { One } from "@/screens/sagas/One";

export const routes: Routes = { "/": List, "/$id": One };
