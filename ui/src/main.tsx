import { render } from "preact";
import "./style/base.css";
import "./style/parts.css";
import "./style/screens.css";
import "./theme";
import { App } from "./app";
import { startRouter } from "./router";

startRouter();
render(<App />, document.getElementById("app")!);
