import type { Routes } from "@/app/screens";
import { One } from "@/screens/guards/One";
import { List } from "@/screens/guards/List";

export const routes: Routes = { "/": List, "/$id": One };
