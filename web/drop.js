/* drop: files onto the page, or through the button: an API workflow as JSON, or a PNG that carries
 * one. */
import {parse} from './api.js';
import {$, show} from './dom.js';
import {workflowOfPng} from './png.js';
import {toast} from './toast.js';
import {kindOf} from './workflow.js';
import {openWorkflow} from './workflowview.js';

const JSON_MOST = 32 * 2 ** 20;

const UI_HINT = 'It was saved for ComfyUI\'s editor. Open it there, use Workflow → Export (API), ' +
    'and drop that file here.';

async function readPng(file) {
    const found = await workflowOfPng(file);
    if (found.prompt === null)
        throw new Error(found.editor ? UI_HINT : 'This picture carries no workflow.');
    return found.prompt;
}

/* The graph in a text; a whole request ({"prompt": graph}) will do, too. */
function readGraph(text) {
    let value;
    try {
        value = parse(text);
    } catch (e) {
        throw new Error(`This is no JSON: ${e.message}`);
    }
    const kind = kindOf(value);
    if (kind === 'api')
        return value;
    if (kindOf(value?.prompt) === 'api')
        return value.prompt;
    throw new Error(kind === 'ui' ?
            UI_HINT :
            'This JSON is no workflow: nodes with a class_type were expected.');
}

async function readFile(file) {
    const start = new Uint8Array(await file.slice(0, 4).arrayBuffer());
    if (start[0] === 137 && start[1] === 80)
        return readGraph(await readPng(file));
    if (/^image\//.test(file.type))
        throw new Error('Only PNG pictures carry a workflow.');
    if (file.size > JSON_MOST)
        throw new Error('The file is too large for a workflow.');
    return readGraph(await file.text());
}

export async function take(file) {
    try {
        await openWorkflow(await readFile(file), file.name || 'Dropped file');
    } catch (e) {
        toast('error', file.name || 'Dropped file', e.message);
    }
}

const hasFiles = (e) => [...(e.dataTransfer?.types || [])].includes('Files');

export function start() {
    let depth = 0; /* enter and leave come for every element on the way */
    const veil = (n) => {
        depth = n;
        show($('drop-veil'), depth > 0);
    };
    addEventListener('dragenter', (e) => hasFiles(e) && veil(depth + 1));
    addEventListener('dragleave', (e) => hasFiles(e) && veil(Math.max(0, depth - 1)));
    addEventListener('dragover', (e) => hasFiles(e) && e.preventDefault());
    addEventListener('drop', (e) => {
        veil(0);
        const file = e.dataTransfer?.files?.[0];
        if (!file)
            return;
        e.preventDefault();
        take(file);
    });
    $('btn-open-file').addEventListener('click', () => $('file-input').click());
    $('file-input').addEventListener('change', (e) => {
        const file = e.target.files[0];
        e.target.value = ''; /* the same file again is a change again */
        if (file)
            take(file);
    });
}
