/* replay: runs a fuzz target over a committed corpus, without libFuzzer. Every file is also cut at
 * every eighth byte and has single bytes flipped, so that a replay is a small fuzz run of its
 * own. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static size_t runs;

/* The target gets an exact-size heap copy, so that ASan sees a read one byte too far. */
static void run(const uint8_t *data, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy)
        abort();
    memcpy(copy, data, n);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
    runs++;
}

static void run_variants(uint8_t *data, size_t n)
{
    run(data, n);
    size_t step = n / 64 + 1;
    for (size_t cut = 0; cut < n; cut += step)
        run(data, cut);
    for (size_t i = 0; i < n; i += step) {
        uint8_t was = data[i];
        data[i] = (uint8_t)(was ^ (1u << (i % 8)));
        run(data, n);
        data[i] = 0xff;
        run(data, n);
        data[i] = was;
    }
}

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return 1;
    }
    static uint8_t buf[1 << 20];
    size_t n = fread(buf, 1, sizeof buf, f);
    fclose(f);
    run_variants(buf, n);
    return 0;
}

int main(int argc, char **argv)
{
    size_t files = 0;
    for (int i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        if (!d) {
            perror(argv[i]);
            return 1;
        }
        for (struct dirent *e; (e = readdir(d));) {
            char path[4096];
            if (e->d_name[0] == '.')
                continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            if (replay_file(path))
                return 1;
            files++;
        }
        closedir(d);
    }
    printf("%zu files, %zu inputs\n", files, runs);
    return files ? 0 : 1; /* an empty corpus is a mistake */
}
