/** The page's style. Every colour has a contrast of at least 4.5 with its background, in both schemes. */
export const STYLE = `
:root{color-scheme:light dark;--text:#1b1f24;--quiet:#57606a;--page:#fff;--card:#f6f8fa;--line:#d0d7de;--link:#0757b3;
--get:#0757b3;--post:#116329;--put:#8a4600;--delete:#b3141d;--head:#6639ba}
@media(prefers-color-scheme:dark){:root{--text:#e6edf3;--quiet:#9aa4ae;--page:#0d1117;--card:#161b22;--line:#30363d;--link:#79c0ff;
--get:#79c0ff;--post:#56d364;--put:#f0a35e;--delete:#ff8e86;--head:#d2a8ff}}
*{box-sizing:border-box}
html{scroll-padding-top:1rem}
body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:80rem;padding:0 1rem 4rem;color:var(--text);background:var(--page);overflow-wrap:anywhere}
a{color:var(--link)}
h1{margin:1.5rem 0 .5rem}h1 small{color:var(--quiet);font-weight:400}
h2{margin:2.5rem 0 .25rem;padding-bottom:.25rem;border-bottom:1px solid var(--line)}h2:first-letter{text-transform:uppercase}
h3{font-size:1rem;margin:1.25rem 0 .25rem}
p{margin:.5rem 0}
code,pre{tab-size:2;font:.875rem/1.5 ui-monospace,monospace}
pre{position:relative;margin:.25rem 0 .75rem;padding:.6rem .75rem;background:var(--card);border:1px solid var(--line);border-radius:6px;white-space:pre-wrap}
dl{margin:.25rem 0}dt{margin-top:.4rem;padding-top:.4rem;border-top:1px solid var(--line)}dt:first-of-type{margin:0;border-top:0}dt code{font-weight:600}dt i,.quiet{color:var(--quiet);font-style:normal}dd{margin:0 0 0 1rem}
summary{cursor:pointer}summary:hover code{text-decoration:underline}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
section:first-child>h2{margin-top:1rem}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem}
.op{border:1px solid var(--line);border-left:4px solid var(--c);border-radius:6px;margin:.5rem 0;scroll-margin-top:1rem}
.op>summary{padding:.5rem .75rem;display:grid;grid-template-columns:auto minmax(0,1fr) 1rem;gap:0 .75rem;align-items:baseline;list-style:none}
.op>summary::after{content:'';grid-area:1/3;justify-self:center;align-self:center;width:.45rem;height:.45rem;border:solid var(--quiet);border-width:0 2px 2px 0;transform:rotate(45deg)}.op[open]>summary::after{transform:rotate(-135deg)}
.op>summary::-webkit-details-marker{display:none}
.op>summary b{color:var(--c);font:700 .8rem ui-monospace,monospace}
.op>summary code{grid-area:2/1/auto/-1;font-weight:600}
.op>summary span{grid-area:1/2;color:var(--quiet)}
.op[open]>summary{border-bottom:1px solid var(--line);background:var(--card)}
.op>div{padding:.25rem .75rem .75rem}
.get{--c:var(--get)}.post{--c:var(--post)}.put,.patch{--c:var(--put)}.delete{--c:var(--delete)}.head{--c:var(--head)}
dd details{margin-top:.25rem;padding-left:.75rem;border-left:2px solid var(--line)}
nav ul{list-style:none;margin:.75rem 0;padding:0;display:flex;flex-wrap:wrap;gap:.25rem .9rem}
nav li a{display:inline-block;padding:.15rem 0}
label{font-weight:600}
input{font:inherit;display:block;width:100%;margin:.25rem 0;padding:.4rem .6rem;color:inherit;background:var(--page);border:1px solid var(--quiet);border-radius:6px}
::placeholder{color:var(--quiet);opacity:1}
button{font:.8rem/1.4 system-ui,sans-serif;color:var(--text);background:var(--page);border:1px solid var(--quiet);border-radius:4px;padding:.25rem .6rem;cursor:pointer}
.line{display:flex;justify-content:space-between;align-items:baseline;gap:.25rem .75rem;margin:1rem 0 .25rem}.line>:first-child{margin:0}.line button{flex:none}
[hidden]{display:none!important}
@media(min-width:62rem){.layout{display:grid;grid-template-columns:14rem minmax(0,1fr);gap:2.5rem}nav{position:sticky;top:0;align-self:start;max-height:100vh;overflow-y:auto;padding:1rem .25rem}nav ul{display:block}
}
@media(min-width:40rem){.op>summary{grid-template-columns:3.75rem minmax(0,1fr) 1rem}.op>summary code{grid-area:1/2}.op>summary span{grid-area:2/2}}
@media print{nav,button{display:none}}
`
