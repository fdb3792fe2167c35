import type { Routes } from "@/app/screens";
import { Trail } from "@/screens/audit/Trail";

export const routes: Routes = { "/": Trail };
